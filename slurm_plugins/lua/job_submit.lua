-- SPDX-License-Identifier: Apache-2.0
--
-- fairwatt's submit hook. It carries a job's request to the policy daemon and writes the answer
-- back; no policy lives here. Settings come from fairwatt_hook.lua in the folder of this file:
--
--   return { socket = "/run/fairwatt/policyd.sock",   -- where policyd listens
--            fail_mode = "open",                      -- "open": submit unchanged, "closed": refuse
--            deadline_ms = 10,                        -- all a job may wait, connect included
--            breaker_s = 2,                           -- first pause after a failure, doubles to 30
--            site_script = "/etc/slurm/site.lua" }    -- optional: runs first, may refuse
--
-- Lua 5.1 to 5.4. slurmctld holds its locks while this runs, so there is one try, one deadline,
-- and no file, process or name look-up. Slurm up to 25.11 accepts a job half-edited when a script
-- fails, 26.05 refuses it: hence nothing raises out of here and edits are written last, or undone.

local SUCCESS = 0
local REFUSED = 2072 -- ESLURM_INVALID_GRES, by number: 22.05 lacks the name, and nil would accept
local PROTOCOL = 1
local MAX_EDIT_BYTES = 1023 -- slurmctld refuses longer strings after the hook
local MAX_FIELD_BYTES = 16384
local MAX_TRES_BYTES = 1023 -- slurmctld would refuse more, and a long list costs policyd its deadline
local MAX_ANSWER_BYTES = 65536
local MAX_SAY_BYTES = 4000
local MAX_BREAKER_S = 30
local NOT_APPLIED = "fairwatt: the site's GPU policy could not be applied (%s); %s"

local TRES_FIELDS = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
local TEXT_FIELDS = {
  "partition", "features", "req_nodes", "exc_nodes", "account", "qos", "admin_comment", "std_in",
  "reservation",
}
local NUMBER_FIELDS = {
  "num_tasks", "cpus_per_task", "ntasks_per_node", "min_nodes", "max_nodes", "min_cpus",
  "time_limit", "user_id", "job_id", "argc", "ntasks_per_gpu",
}
-- sbatch exports these; srun inside the job reads them as its own options, so they must agree.
local ENVIRONMENT = {
  "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
  "SLURM_TRES_PER_TASK", -- 23.11 and later, beside SLURM_GPUS_PER_TASK or in its place
}
-- What an answer may change, and how each value is checked.
local WRITABLE = {
  tres_per_node = "gres", tres_per_job = "gres", tres_per_task = "gres", tres_per_socket = "gres",
  partition = "text", features = "text", exc_nodes = "text", admin_comment = "text",
  num_tasks = "count", cpus_per_task = "count", ntasks_per_node = "count",
  min_nodes = "count", max_nodes = "count",
}
for _, name in ipairs(ENVIRONMENT) do WRITABLE[name] = "environment" end

---------------------------------------------------------------------------------------- settings

local DEFAULTS = {
  socket = "/run/fairwatt/policyd.sock", fail_mode = "open", deadline_ms = 10, breaker_s = 2,
}

local function here()
  local source = debug.getinfo(1, "S").source
  return source:match("^@(.*/)[^/]*$") or "./"
end

-- A missing or faulty settings file must not stop slurmctld: defaults, and one line in its log.
local function read_settings()
  local found, given = pcall(dofile, here() .. "fairwatt_hook.lua")
  local problem = nil
  if not found or type(given) ~= "table" then
    problem = "fairwatt: fairwatt_hook.lua is not used, defaults hold: " .. tostring(given)
    given = {}
  end
  local settings = {}
  if type(given.site_script) == "string" then settings.site_script = given.site_script end
  for name, default in pairs(DEFAULTS) do
    local value = given[name]
    settings[name] = type(value) == type(default) and value or default
  end
  if settings.fail_mode ~= "closed" then settings.fail_mode = "open" end
  local deadline, pause = settings.deadline_ms, settings.breaker_s
  if not (deadline > 0 and deadline <= 1000) then settings.deadline_ms = 10 end
  if not (pause > 0 and pause <= MAX_BREAKER_S) then settings.breaker_s = 2 end
  return settings, problem
end

local function log(text)
  slurm.log_info("%s", text)
end

local settings, settings_problem = read_settings()
if settings_problem then pcall(log, settings_problem) end

-------------------------------------------------------------------------------------------- JSON

-- The wire carries bytes as Latin-1 code points, so that a user's broken UTF-8 survives the trip.
local function quote(text)
  return '"' .. text:gsub('[%c"\\\127-\255]', function(char)
    return string.format("\\u%04x", char:byte())
  end) .. '"'
end

local function is_finite(number)
  return number == number and number > -math.huge and number < math.huge
end

local function encode_flat(object)
  local parts = {}
  for name, value in pairs(object) do
    local text = type(value) == "number" and string.format("%.0f", value) or quote(value)
    parts[#parts + 1] = quote(name) .. ":" .. text
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

local ESCAPES = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}
local NULL = {}
local decode_value

local function decode_string(text, at)
  local parts = {}
  local from = at + 1
  while true do
    local stop, _, char = text:find('(["\\%c])', from)
    if not stop then error("string without an end") end
    parts[#parts + 1] = text:sub(from, stop - 1)
    if char == '"' then return table.concat(parts), stop + 1 end
    if char ~= "\\" then error("control character in a string") end
    local kind = text:sub(stop + 1, stop + 1)
    if kind == "u" then
      local hex = text:match("^%x%x%x%x", stop + 2)
      if not hex then error("bad \\u escape") end
      local code = tonumber(hex, 16)
      parts[#parts + 1] = code < 256 and string.char(code) or "?"
      from = stop + 6
    else
      if not ESCAPES[kind] then error("bad escape") end
      parts[#parts + 1] = ESCAPES[kind]
      from = stop + 2
    end
  end
end

local function skip_space(text, at)
  return text:find("[^ \t\r\n]", at) or #text + 1
end

local function decode_object(text, at, depth)
  local object = {}
  at = skip_space(text, at + 1)
  if text:sub(at, at) == "}" then return object, at + 1 end
  while true do
    if text:sub(at, at) ~= '"' then error("name expected") end
    local name
    name, at = decode_string(text, at)
    at = skip_space(text, at)
    if text:sub(at, at) ~= ":" then error("colon expected") end
    object[name], at = decode_value(text, skip_space(text, at + 1), depth + 1)
    at = skip_space(text, at)
    local mark = text:sub(at, at)
    if mark == "}" then return object, at + 1 end
    if mark ~= "," then error("comma expected") end
    at = skip_space(text, at + 1)
  end
end

local LITERALS = { ["true"] = true, ["false"] = false, ["null"] = NULL }

-- Answers hold objects, strings and numbers; a list is refused like any other surprise.
function decode_value(text, at, depth)
  if depth > 4 then error("nested too deeply") end
  local first = text:sub(at, at)
  if first == "{" then return decode_object(text, at, depth) end
  if first == '"' then return decode_string(text, at) end
  local word = text:match("^[%w%+%-%.]+", at) or ""
  if LITERALS[word] ~= nil then return LITERALS[word], at + #word end
  if not word:match("^%-?%d+%.?%d*[eE]?[%+%-]?%d*$") then error("unknown value") end
  local number = tonumber(word)
  if not number or not is_finite(number) then error("bad number") end
  return number, at + #word
end

local function decode(text)
  local value, at = decode_value(text, skip_space(text, 1), 0)
  if skip_space(text, at) <= #text then error("text after the end") end
  return value
end

-------------------------------------------------------------------------------------- connection

local has_socket, socket = pcall(require, "socket")
local has_unix, unix = pcall(require, "socket.unix")
-- LuaSocket 3.1 gives a table of constructors, older ones the constructor itself.
local new_stream = has_unix and (type(unix) == "table" and (unix.stream or unix.tcp) or unix)

local PAUSED = "policyd does not answer"
local connection = nil
local breaker = { open_until = 0, opened_at = 0, pause_s = 0 }
local unapplied = 0
local serial = 0

local function hang_up()
  if connection then pcall(connection.close, connection) end
  connection = nil
end

local function trip_breaker(now)
  hang_up()
  breaker.pause_s = math.min(MAX_BREAKER_S, math.max(settings.breaker_s, breaker.pause_s * 2))
  breaker.opened_at = now
  breaker.open_until = now + breaker.pause_s
end

-- Both forms: the first bounds one wait, "t" the whole operation.
local function allow(stream, stop)
  local left = stop - socket.gettime()
  if left <= 0 then return false end
  stream:settimeout(left)
  stream:settimeout(left, "t")
  return true
end

local function dial(stop)
  local stream = new_stream()
  if not stream then return nil, "no socket" end
  connection = stream
  if not allow(stream, stop) then return nil, "timeout" end
  local done, why = stream:connect(settings.socket)
  if not done then return nil, why or "cannot connect" end
  return stream
end

-- connect() to a full backlog "succeeds" and fails at send: every failure is alike.
local function converse(line, stop)
  local stream, why, answer, done = connection, nil, nil, nil
  if not stream then
    stream, why = dial(stop)
    if not stream then return nil, why end
  end
  if not allow(stream, stop) then return nil, "timeout" end
  done, why = stream:send(line)
  if not done then return nil, why end
  if not allow(stream, stop) then return nil, "timeout" end
  answer, why = stream:receive("*l")
  if answer and #answer > MAX_ANSWER_BYTES then return nil, "oversized answer" end
  return answer, why
end

-- One try within one deadline. A connection that policyd closed since the last job (a restart)
-- is dialled anew inside the same deadline.
local function exchange(line)
  if not (has_socket and new_stream) then return nil, "LuaSocket's socket.unix is missing" end
  local now = socket.gettime()
  if now < breaker.open_until and now >= breaker.opened_at then return nil, PAUSED end
  local stop = now + settings.deadline_ms / 1000
  local inherited = connection ~= nil
  local answer, why = converse(line, stop)
  if not answer and inherited and why == "closed" then
    hang_up()
    answer, why = converse(line, stop)
  end
  if not answer then
    trip_breaker(now)
    return nil, "policyd: " .. tostring(why)
  end
  breaker.pause_s, breaker.open_until = 0, 0
  return answer
end

----------------------------------------------------------------------------------------- request

local function read_tres(source)
  local copy = {}
  for _, name in ipairs(TRES_FIELDS) do
    local value = source[name]
    if type(value) == "string" then copy[name] = value end
  end
  if not copy.tres_per_node then
    local value = source.gres -- older name of tres_per_node
    if type(value) == "string" then copy.tres_per_node = value end
  end
  return copy
end

local function mentions_gpu(copy)
  for _, value in pairs(copy) do
    if value:lower():find("gpu", 1, true) then return true end
  end
  return false
end

-- Slurm works out the GPUs of `--ntasks-per-gpu=2 -n4` after this hook: no TRES field shows them.
local function implies_gpu(job_desc)
  local tasks = job_desc.ntasks_per_gpu
  return type(tasks) == "number" and tasks > 0 and tasks < 65534
end

-- For the same reason such a pending job shows its GPUs only in what it was counted for.
local function read_counted(job_rec, copy)
  local counted = job_rec.tres_fmt_req_str
  if mentions_gpu(copy) or type(counted) ~= "string" then return end
  if counted:find("gres/gpu", 1, true) then copy.tres_counted = counted end
end

-- The name that salloc gives a job without one. From 24.11 on it sends its command line as srun
-- does, and no field but this tells the two apart; other names are nobody's business.
local SALLOC_NAME = "interactive"

local function read_rest(source, copy)
  if source.name == SALLOC_NAME then copy.name = SALLOC_NAME end
  for _, name in ipairs(TEXT_FIELDS) do
    local value = source[name]
    if type(value) == "string" then copy[name] = value end
  end
  for _, name in ipairs(NUMBER_FIELDS) do
    local value = source[name]
    if type(value) == "number" and value >= 0 and value < 2 ^ 53 then copy[name] = value end
  end
  return copy
end

-- Only sbatch sends its environment (and always a name for stdin); Slurm logs an error otherwise.
local function read_environment(job_desc, copy)
  local environment = copy.std_in and copy.std_in ~= "" and job_desc.environment
  if not environment then return end
  for _, name in ipairs(ENVIRONMENT) do
    local value = environment[name]
    if type(value) == "string" then copy[name] = value end
  end
end

local function overlong(copy)
  for _, name in ipairs(TRES_FIELDS) do
    if copy[name] and #copy[name] > MAX_TRES_BYTES then return name end
  end
  for name, value in pairs(copy) do
    if type(value) == "string" and #value > MAX_FIELD_BYTES then return name end
  end
  return nil
end

-- 23.11 and later write gres/gpu; the constant came with them. 21.08 to 23.02 write gres:gpu.
local function server_spelling()
  return slurm.GRES_ALLOW_TASK_SHARING ~= nil and "slash" or "colon"
end

local function request_line(id, verb, spelling, job, record)
  local parts = string.format('{"v":%d,"id":%s,"verb":%s,"spelling":%s,"job":%s',
    PROTOCOL, quote(id), quote(verb), quote(spelling), encode_flat(job))
  if record then parts = parts .. ',"record":' .. encode_flat(record) end
  return parts .. "}\n"
end

------------------------------------------------------------------------------------------ answer

local function check_gres(value, spelling)
  local prefix = spelling == "slash" and "gres/" or "gres:"
  for item in (value .. ","):gmatch("([^,]*),") do
    local other_tres = spelling == "slash" and item:find("^%a") and not item:find("^gres[:/]")
      and not item:find("^gpu")
    if item:sub(1, #prefix) ~= prefix and not other_tres then return false end
  end
  return true
end

local function is_count(value)
  return type(value) == "number" and is_finite(value) and value >= 0 and value < 65534
    and value == math.floor(value)
end

local function check_edit(name, value, spelling)
  local kind = WRITABLE[name]
  if not kind then return false end
  if kind == "count" then return is_count(value) end
  if type(value) ~= "string" or #value > MAX_EDIT_BYTES or value:find("%c") then return false end
  return kind ~= "gres" or value == "" or check_gres(value, spelling)
end

local function check_text(value)
  return value == nil
    or (type(value) == "string" and #value <= MAX_SAY_BYTES and not value:gsub("\n", ""):find("%c"))
end

local function check_answer(answer, id, spelling)
  if type(answer) ~= "table" or answer == NULL then error("answer is no object") end
  if answer.v ~= PROTOCOL then error("answer of another protocol version") end
  if answer.id ~= id then error("answer to another request") end
  if answer.act ~= "accept" and answer.act ~= "reject" then error("answer without a decision") end
  if not check_text(answer.say) then error("bad text in the answer") end
  local edits = answer.set == nil and {} or answer.set
  if type(edits) ~= "table" or edits == NULL then error("bad edits in the answer") end
  for name, value in pairs(edits) do
    if not check_edit(name, value, spelling) then
      error("bad edit of " .. string.format("%.40s", tostring(name)))
    end
  end
  return edits
end

local function write(job_desc, name, value)
  if WRITABLE[name] == "environment" then
    job_desc.environment[name] = value
  else
    job_desc[name] = value
  end
end

-- All edits or none: what was written is put back when a write fails.
local function write_edits(job_desc, edits, before)
  local written = {}
  local done, why = pcall(function()
    for name, value in pairs(edits) do
      written[#written + 1] = name
      write(job_desc, name, value)
    end
  end)
  if done then return end
  for _, name in ipairs(written) do
    local unset = WRITABLE[name] == "count" and slurm.NO_VAL or ""
    pcall(write, job_desc, name, before[name] or unset)
  end
  error(why, 0)
end

------------------------------------------------------------------------------------------- hooks

-- Up to 22.05 a message of a modify is discarded with an error in the log; 23.02 knows more codes.
local function tell(verb, text)
  if verb == "modify" and slurm.ESLURM_INVALID_GRES == nil then return log(text) end
  for line in text:gmatch("[^\n]+") do slurm.log_user("%s", line) end
end

local CONSEQUENCES = {
  open = { submit = "the job is submitted unchanged", modify = "the change is made as asked" },
  closed = { submit = "the job is refused, try again in a minute",
             modify = "the change is refused, try again in a minute" },
}

-- The policy cannot be applied: one line to the user, one counted line in the log, the fail mode.
local function give_up(verb, reason)
  unapplied = unapplied + 1
  local text = string.format(NOT_APPLIED, reason, CONSEQUENCES[settings.fail_mode][verb])
  if reason ~= PAUSED then
    pcall(log, string.format("%s [%.0f since this script was loaded]", text, unapplied))
  end
  pcall(tell, verb, text)
  return settings.fail_mode == "closed" and REFUSED or SUCCESS
end

local function refuse(verb, text)
  tell(verb, text)
  return REFUSED
end

local function next_id()
  serial = serial + 1
  return string.format("%.0f-%.0f", has_socket and socket.gettime() * 1e6 or 0, serial)
end

local function apply(verb, job_desc, job, record)
  read_rest(job_desc, job)
  if record then
    read_rest(record.source, record.copy)
    record.copy.reservation = record.source.resv_name
  else
    read_environment(job_desc, job)
  end
  local long = overlong(job) or (record and overlong(record.copy))
  if long then return refuse(verb, "fairwatt FW003: " .. long .. " is too long; shorten it") end
  local id, spelling = next_id(), server_spelling()
  local line, why = exchange(request_line(id, verb, spelling, job, record and record.copy))
  if not line then return give_up(verb, why) end
  local valid, edits, answer = pcall(function()
    local decoded = decode(line)
    return check_answer(decoded, id, spelling), decoded
  end)
  if not valid then
    hang_up() -- the stream may be out of step; the daemon is quick, so no pause
    return give_up(verb, "policyd: " .. tostring(edits):gsub("^.-:%d+: ", ""))
  end
  if answer.act == "reject" then return refuse(verb, answer.say or "fairwatt: refused") end
  if answer.say then tell(verb, answer.say) end
  write_edits(job_desc, edits, job)
  return SUCCESS
end

local function on_submit(job_desc)
  local job = read_tres(job_desc)
  if not mentions_gpu(job) and not implies_gpu(job_desc) then return SUCCESS end
  return apply("submit", job_desc, job)
end

local function on_modify(job_desc, job_rec, _, uid)
  if uid == 0 then return SUCCESS end
  local job, record = read_tres(job_desc), read_tres(job_rec)
  read_counted(job_rec, record)
  if not mentions_gpu(job) and not mentions_gpu(record) then return SUCCESS end
  return apply("modify", job_desc, job, { source = job_rec, copy = record })
end

-- A site's own script runs first, so that ours judges what it made of the job.
local function site_functions()
  if not settings.site_script then return nil, nil end
  slurm_job_submit, slurm_job_modify = nil, nil
  local loaded, why = pcall(dofile, settings.site_script)
  if not loaded then pcall(log, "fairwatt: site_script cannot be loaded: " .. tostring(why)) end
  return slurm_job_submit, slurm_job_modify
end

local site_submit, site_modify = site_functions()

local function site_first(site_function, ...)
  if type(site_function) ~= "function" then return SUCCESS end
  local done, code = pcall(site_function, ...)
  if done then return type(code) == "number" and code or SUCCESS end
  log("fairwatt: site_script failed: " .. tostring(code))
  return settings.fail_mode == "closed" and REFUSED or SUCCESS
end

-- Nothing raises out of here: a fault of ours is the fail mode, the same on every release.
local function guarded(verb, site_function, body, ...)
  local done, code = pcall(function(...)
    local first = site_first(site_function, ...)
    if first ~= SUCCESS then return first end
    return body(...)
  end, ...)
  if done then return code end
  pcall(log, "fairwatt: " .. tostring(code):gsub("%c", " "):sub(1, 500))
  local ended, answer = pcall(give_up, verb, "error in the hook")
  if ended then return answer end
  return settings.fail_mode == "closed" and REFUSED or SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  return guarded("submit", site_submit, on_submit, job_desc, part_list, submit_uid)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return guarded("modify", site_modify, on_modify, job_desc, job_rec, part_list, modify_uid)
end

return SUCCESS
