/* SPDX-License-Identifier: Apache-2.0
 * What a prolog's `nvidia-smi --query-gpu=… --format=csv` asks the library for, and nothing else:
 * index, uuid, name, memory used, temperature, power, uncorrected ECC errors, utilisation.
 *
 * The fake library answers at once, a driver does not: PEER_QUERY_MS is slept, once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct device *device_t;
struct memory { unsigned long long total, free, used; };
struct rates { unsigned gpu, memory; };

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *);
int nvmlDeviceGetHandleByIndex_v2(unsigned, device_t *);
int nvmlDeviceGetUUID(device_t, char *, unsigned);
int nvmlDeviceGetName(device_t, char *, unsigned);
int nvmlDeviceGetMemoryInfo(device_t, struct memory *);
int nvmlDeviceGetTemperature(device_t, int, unsigned *);
int nvmlDeviceGetPowerUsage(device_t, unsigned *);
int nvmlDeviceGetTotalEccErrors(device_t, int, int, unsigned long long *);
int nvmlDeviceGetUtilizationRates(device_t, struct rates *);

int main(void)
{
    unsigned count = 0;
    const char *driver_ms = getenv("PEER_QUERY_MS");
    usleep(driver_ms ? (unsigned)atoi(driver_ms) * 1000 : 0);
    if (nvmlInit_v2() != 0 || nvmlDeviceGetCount_v2(&count) != 0)
        return 9;
    for (unsigned index = 0; index < count; index++) {
        device_t device;
        char uuid[96] = "", name[96] = "";
        struct memory memory = {0};
        struct rates rates = {0};
        unsigned celsius = 0, mw = 0;
        unsigned long long ecc = 0;
        if (nvmlDeviceGetHandleByIndex_v2(index, &device) != 0)
            return 15;
        nvmlDeviceGetUUID(device, uuid, sizeof uuid);
        nvmlDeviceGetName(device, name, sizeof name);
        nvmlDeviceGetMemoryInfo(device, &memory);
        nvmlDeviceGetTemperature(device, 0, &celsius);
        nvmlDeviceGetPowerUsage(device, &mw);
        nvmlDeviceGetTotalEccErrors(device, 1, 0, &ecc);
        nvmlDeviceGetUtilizationRates(device, &rates);
        printf("%u, %s, %s, %llu, %u, %u, %llu, %u\n", index, uuid, name, memory.used >> 20,
               celsius, mw / 1000, ecc, rates.gpu);
    }
    return nvmlShutdown();
}
