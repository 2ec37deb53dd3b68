# SPDX-License-Identifier: Apache-2.0
"""Response headers: a strict content policy, and answers that no cache may share."""

from __future__ import annotations

from flask import Response, request

__all__ = ["CSP", "add_headers"]

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def add_headers(response: Response) -> Response:
    """Set the security headers; pages depend on who asks, so only static files may be cached."""
    for name, value in _HEADERS.items():
        response.headers[name] = value
    if request.endpoint == "static":
        response.headers["Cache-Control"] = "public, max-age=3600"
    else:
        response.headers["Cache-Control"] = "private, no-cache"
        response.vary.add("Cookie")
    return response
