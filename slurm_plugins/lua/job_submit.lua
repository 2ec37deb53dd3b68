-- SPDX-License-Identifier: Apache-2.0
--
-- fairwatt's submit hook. It carries a job's request to the policy daemon and writes the answer
-- back; no policy lives here. Settings come from fairwatt_hook.lua in the folder of this file:
--
--   return { socket = "/run/fairwatt/policyd.sock",   -- where policyd listens
--            fail_mode = "open",                      -- "open": submit unchanged, "closed": refuse
--            jobs = "gpu",                            -- which jobs are judged: "gpu" or "all"
--            deadline_ms = 10,                        -- all a job may wait, connect included
--            breaker_s = 2,                           -- first pause after a failure, doubles to 30
--            site_script = "/etc/slurm/site.lua",     -- optional: a script of the site's own
--            site_order = "before" }                  -- it runs "before" or "after" ours
--
-- An equal job within `policyd.reuse_s` gets the same answer without waiting; policyd is told of it
-- and ends that at once when its policy or the cluster changes.
--
-- Both scripts may refuse a job; the later one sees what the earlier one made of it. slurmctld
-- reads this file and its settings anew when the modification time of this file grows.
--
-- Lua 5.1 to 5.4. slurmctld holds its locks while this runs, so there is one try, one deadline,
-- and no file, process or name look-up. Slurm up to 25.11 accepts a job half-edited when a script
-- fails, 26.05 refuses it: hence nothing raises out of here and edits are written last, or undone.

local SUCCESS = 0
local REFUSED = 2072 -- ESLURM_INVALID_GRES, by number: 22.05 lacks the name, and nil would accept
local PROTOCOL = 1
local NO_VAL, NO_VAL_16 = 4294967294, 65534 -- how Slurm says "not set"
local MAX_EDIT_BYTES = 1023 -- slurmctld refuses longer strings after the hook
local MAX_FIELD_BYTES = 16384
local MAX_TRES_BYTES = 1023 -- slurmctld would refuse more, and policyd would need too long
local MAX_ANSWER_BYTES = 65536
local MAX_SAY_BYTES = 4000
local MAX_BREAKER_S = 30
local NOT_APPLIED = "fairwatt: the site's GPU policy could not be applied (%s); %s"
local SITE_FAILED = "fairwatt: the site's own submit script failed; %s"

local TRES_FIELDS = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
local TEXT_FIELDS = {
  "partition", "features", "req_nodes", "exc_nodes", "account", "qos", "admin_comment", "std_in",
  "reservation", "cpus_per_tres", "mem_per_tres", "array_inx",
}
local NUMBER_FIELDS = {
  "job_id", "num_tasks", "cpus_per_task", "ntasks_per_node", "ntasks_per_gpu",
  "min_nodes", "max_nodes", "min_cpus", "pn_min_cpus", "min_mem_per_node", "min_mem_per_cpu",
  "shared", "time_limit", "time_min", "begin_time",
}
-- Values that mean "not set", where it is not NO_VAL. A memory that is not set reads as nil.
local UNSET = {
  cpus_per_task = NO_VAL_16, ntasks_per_node = NO_VAL_16, ntasks_per_gpu = NO_VAL_16,
  pn_min_cpus = NO_VAL_16, shared = NO_VAL_16, begin_time = 0,
  time_min = 0,
}
-- sbatch exports these; srun inside the job reads them as its own options, so they must agree.
local ENVIRONMENT = {
  "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
  "SLURM_TRES_PER_TASK", -- 23.11 and later, beside SLURM_GPUS_PER_TASK or in its place
  "SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU",
}
-- What a job's steps would take as options though it was meant for the job that submits them.
local INHERITED = {
  "SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU",
  "SLURM_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_GPUS", "SLURM_GPUS_PER_NODE",
  "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND",
  "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU", "SLURM_NNODES",
  "SLURM_THREADS_PER_CORE", "SLURM_EXCLUSIVE", "SLURM_DISTRIBUTION", "SLURM_HINT",
}
-- The same of each part of a heterogeneous job, by two names; only its first part carries them.
local MAX_PARTS = 32
local MAX_PART_BYTES = 255
local OF_PARTS = {}
for part = 0, MAX_PARTS - 1 do
  for _, name in ipairs(ENVIRONMENT) do
    OF_PARTS[#OF_PARTS + 1] = string.format("%s_HET_GROUP_%.0f", name, part)
    OF_PARTS[#OF_PARTS + 1] = string.format("%s_PACK_GROUP_%.0f", name, part)
  end
end
-- What a request line holds, in this order: equal jobs are equal bytes, so policyd can remember.
-- The user is first and the time limit second: behind them equal jobs of two users are equal too,
-- and so are jobs that differ in a limit for which policyd has the same answer.
local WIRE_ORDER = {
  "user_id", "time_limit", "tres_counted", "client", "cron_job", "has_script", "het_offset", "inherited",
  "default_account",
}
-- What an answer may change and how each value is checked, in the order in which it is written.
-- Memory is last: it cannot be put back to "not set", which is no number of Lua's.
local WRITABLE = {
  { "gres", { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket",
              "cpus_per_tres", "mem_per_tres" } },
  { "text", { "partition", "features", "exc_nodes", "qos", "admin_comment" } },
  { "count", { "num_tasks", "min_nodes", "max_nodes", "min_cpus", "time_limit" } },
  { "short", { "cpus_per_task", "ntasks_per_node", "pn_min_cpus", "shared" } },
  { "environment", ENVIRONMENT },
  { "memory", { "min_mem_per_node", "min_mem_per_cpu" } },
}
local KINDS, WRITE_ORDER = {}, {}
for _, group in ipairs(WRITABLE) do
  for _, name in ipairs(group[2]) do
    KINDS[name] = group[1]
    WRITE_ORDER[#WRITE_ORDER + 1] = name
  end
end
local IS_OF_PART = {}
for _, name in ipairs(OF_PARTS) do KINDS[name], IS_OF_PART[name] = "environment", true end

---------------------------------------------------------------------------------------- settings

local DEFAULTS = {
  socket = "/run/fairwatt/policyd.sock", fail_mode = "open", deadline_ms = 10, breaker_s = 2,
  jobs = "gpu", site_order = "before",
}
local CHOICES = {
  fail_mode = { open = true, closed = true }, jobs = { gpu = true, all = true },
  site_order = { before = true, after = true },
}
local MOST = { deadline_ms = 1000, breaker_s = MAX_BREAKER_S }

local function here()
  local source = debug.getinfo(1, "S").source
  return source:match("^@(.*/)[^/]*$") or "./"
end

local function is_valid(name, value)
  if type(value) ~= type(DEFAULTS[name]) then return false end
  if CHOICES[name] then return CHOICES[name][value] == true end
  return not MOST[name] or (value > 0 and value <= MOST[name])
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
    settings[name] = default
    if is_valid(name, value) then
      settings[name] = value
    elseif value ~= nil then
      problem = string.format("fairwatt: fairwatt_hook.lua: %s is not used, %s holds", name, default)
    end
  end
  return settings, problem
end

local function log(text)
  slurm.log_info("%s", text)
end

local settings, settings_problem = read_settings()
if settings_problem then pcall(log, settings_problem) end

-------------------------------------------------------------------------------------------- JSON

-- The wire carries bytes as Latin-1 code points, so that a user's broken UTF-8 survives the trip.
local SPECIAL = '[%c"\\\127-\255]'
local ESCAPED = {}
for byte = 0, 255 do ESCAPED[string.char(byte)] = string.format("\\u%04x", byte) end

local function quote(text)
  if text:find(SPECIAL) then text = text:gsub(SPECIAL, ESCAPED) end
  return '"' .. text .. '"'
end

local function is_finite(number)
  return number == number and number > -math.huge and number < math.huge
end

-- Before an answer is taken apart its two commonest escapes, \\ and \", become these bytes: then
-- every quote left is the end of a string, and finding it costs no loop over characters.
local BACKSLASH, QUOTE = "\1", "\2"
local PLACES = { ["\\"] = BACKSLASH, ['"'] = QUOTE }
local ESCAPES = { ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function character(hex)
  local code = tonumber(hex, 16)
  if code < 32 then error("control character in a string") end
  if code == 34 then return QUOTE end
  if code == 92 then return BACKSLASH end
  return code < 256 and string.char(code) or "?"
end

local NULL = {}
local decode_value

local function decode_string(text, at)
  local stop = text:find('"', at + 1, true)
  if not stop then error("string without an end") end
  local body = text:sub(at + 1, stop - 1)
  if body:find("\\", 1, true) then
    body = body:gsub("\\([/bfnrt])", ESCAPES):gsub("\\u(%x%x%x%x)", character)
    if body:find("\\", 1, true) then error("bad escape") end
  end
  if body:find(QUOTE, 1, true) then body = body:gsub(QUOTE, '"') end
  if body:find(BACKSLASH, 1, true) then body = body:gsub(BACKSLASH, "\\") end
  return body, stop + 1
end

local byte = string.byte
local SPACES = { [9] = true, [10] = true, [13] = true, [32] = true }
local OPEN, CLOSE, COLON, COMMA, MARK = byte("{}:,\"", 1, 5)

local function skip_space(text, at)
  if not SPACES[byte(text, at)] then return at end
  return text:find("[^ \t\r\n]", at) or #text + 1
end

local function decode_object(text, at, depth)
  local object = {}
  at = skip_space(text, at + 1)
  if byte(text, at) == CLOSE then return object, at + 1 end
  while true do
    if byte(text, at) ~= MARK then error("name expected") end
    local name
    name, at = decode_string(text, at)
    at = skip_space(text, at)
    if byte(text, at) ~= COLON then error("colon expected") end
    object[name], at = decode_value(text, skip_space(text, at + 1), depth + 1)
    at = skip_space(text, at)
    local mark = byte(text, at)
    if mark == CLOSE then return object, at + 1 end
    if mark ~= COMMA then error("comma expected") end
    at = skip_space(text, at + 1)
  end
end

local LITERALS = { ["true"] = true, ["false"] = false, ["null"] = NULL }

-- Answers hold objects, strings and numbers; a list is refused like any other surprise.
function decode_value(text, at, depth)
  if depth > 4 then error("nested too deeply") end
  local first = byte(text, at)
  if first == OPEN then return decode_object(text, at, depth) end
  if first == MARK then return decode_string(text, at) end
  local word = text:match("^[%w%+%-%.]+", at) or ""
  if LITERALS[word] ~= nil then return LITERALS[word], at + #word end
  if not word:match("^%-?%d+%.?%d*[eE]?[%+%-]?%d*$") then error("unknown value") end
  local number = tonumber(word)
  if not number or not is_finite(number) then error("bad number") end
  return number, at + #word
end

local function decode(text)
  if text:find(BACKSLASH, 1, true) or text:find(QUOTE, 1, true) then
    error("control character in the answer")
  end
  if text:find("\\", 1, true) then text = text:gsub('\\([\\"])', PLACES) end
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
local reports = nil -- a second one, for lines that want no answer: see tell_policyd
local breaker = { open_until = 0, opened_at = 0, pause_s = 0 }
local unapplied = 0
local serial = 0

-- Answers that policyd lets us give again to equal jobs, by what of the request line is behind the
-- user and the time limit; those for other limits, the older ones, hang on `older`. They are good
-- as long as the connection that brought them: policyd ends it when its policy or the cluster
-- changes, and each is given a time besides, in case policyd hangs.
local MAX_KEPT = 512 -- in each of two generations
local MAX_KEPT_BYTES = 4096
local MAX_KEPT_S = 60
local MAX_BANDS = 4
local NO_LIMIT = -1
local kept, kept_before, kept_count = {}, {}, 0

local function forget()
  kept, kept_before, kept_count = {}, {}, 0
end

local function put_kept(key, newest)
  if kept_count >= MAX_KEPT then kept_before, kept, kept_count = kept, {}, 0 end
  if kept[key] == nil then kept_count = kept_count + 1 end
  kept[key] = newest
end

local function add_kept(key, entry)
  entry.older = kept[key] or kept_before[key]
  local last = entry
  for _ = 2, MAX_BANDS do last = last and last.older end
  if last then last.older = nil end
  put_kept(key, entry)
end

local function close(stream)
  if stream then pcall(stream.close, stream) end
end

local function hang_up()
  close(connection)
  close(reports)
  connection, reports = nil, nil
  forget()
end

local function trip_breaker(now)
  hang_up()
  breaker.pause_s = math.min(MAX_BREAKER_S, math.max(settings.breaker_s, breaker.pause_s * 2))
  breaker.opened_at = now
  breaker.open_until = now + breaker.pause_s
end

-- "t" bounds the whole operation, and so each of its waits. With no time left what can be done at
-- once is still done: on a busy host slurmctld itself may have been without a core for that long,
-- and the answer is there.
local function allow(stream, stop)
  stream:settimeout(math.max(0, stop - socket.gettime()), "t")
end

local function dial(stop)
  local stream = new_stream()
  if not stream then return nil, "no socket" end
  connection = stream
  allow(stream, stop)
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
  allow(stream, stop)
  done, why = stream:send(line)
  if not done then return nil, why end
  allow(stream, stop)
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

-- Where there is anything to read, policyd has ended the connection or is out of step.
local function is_in_step(stream)
  stream:settimeout(0) -- of each single wait, so that none is begun
  local text, why, part = stream:receive("*l")
  stream:settimeout(nil)
  return text == nil and why == "timeout" and (part == nil or part == "")
end

local function dial_reports()
  reports = new_stream()
  if not reports then return false end
  reports:settimeout(0)
  if reports:connect(settings.socket) then return true end
  close(reports)
  reports = nil
  return false
end

-- Tell policyd of a job without waiting; false: that could not be done now. The line goes over a
-- connection of its own, where policyd looks a few times a second: woken for each, it would take
-- the core away from slurmctld, which holds its locks now.
local function tell_policyd(line)
  if not connection then return false end
  if not is_in_step(connection) then
    hang_up()
    return false
  end
  if not (reports or dial_reports()) then return false end
  local last, why, sent = reports:send(line)
  if last == #line then return true end
  if why ~= "timeout" or sent ~= 0 then -- dead, or a part of a line is out
    close(reports)
    reports = nil
  end
  return false
end

----------------------------------------------------------------------------------------- request

local function read_tres(source)
  local copy = {}
  for i = 1, #TRES_FIELDS do
    local value = source[TRES_FIELDS[i]]
    if type(value) == "string" then copy[TRES_FIELDS[i]] = value end
  end
  return copy
end

local function mentions_gpu(copy)
  for _, value in pairs(copy) do
    if value:find("[gG][pP][uU]") then return true end
  end
  return false
end

-- Slurm works out the GPUs of `--ntasks-per-gpu=2 -n4` after this hook: no TRES field shows them.
local function implies_gpu(job_desc)
  local tasks = job_desc.ntasks_per_gpu
  return type(tasks) == "number" and tasks > 0 and tasks < NO_VAL_16
end

-- A job that takes whole nodes (--exclusive) gets all GPUs of theirs, though it names none.
local function takes_whole_nodes(job_desc)
  return job_desc.shared == 0
end

-- Of a job that is there Slurm does not show it; policyd has put it into our comment.
local function is_marked_whole(job_rec)
  local comment = job_rec.admin_comment
  return type(comment) == "string" and comment:find('"whole":1', 1, true) ~= nil
end

-- A pending job of --ntasks-per-gpu shows its GPUs only in what it was counted for.
local function read_counted(job_rec, copy)
  if mentions_gpu(copy) then return end
  local counted = job_rec.tres_fmt_req_str
  if type(counted) ~= "string" then return end
  if counted:find("gres/gpu", 1, true) then copy.tres_counted = counted end
end

local function read_texts(source, copy)
  for i = 1, #TEXT_FIELDS do
    local value = source[TEXT_FIELDS[i]]
    if type(value) == "string" then copy[TEXT_FIELDS[i]] = value end
  end
end

local function is_set(value)
  return type(value) == "number" and value >= 0 and value < 2 ^ 53 and value ~= NO_VAL
end

local function read_numbers(source, copy)
  for i = 1, #NUMBER_FIELDS do
    local name = NUMBER_FIELDS[i]
    local value = source[name]
    if is_set(value) and value ~= UNSET[name] then copy[name] = value end
  end
end

local function read_rest(source, copy)
  local user = source.user_id
  if is_set(user) then copy.user_id = user end
  read_texts(source, copy)
  read_numbers(source, copy)
end

local function inherited(environment)
  if type(environment.SLURM_JOB_ID) ~= "string" then return nil end
  local names = {}
  for i = 1, #INHERITED do
    if type(environment[INHERITED[i]]) == "string" then names[#names + 1] = INHERITED[i] end
  end
  return table.concat(names, ",")
end

-- Only sbatch sends its environment (and always a name for stdin); Slurm logs an error otherwise.
local function read_environment(job_desc, copy)
  local environment = copy.std_in and copy.std_in ~= "" and job_desc.environment
  if not environment then return end
  for i = 1, #ENVIRONMENT do
    local value = environment[ENVIRONMENT[i]]
    if type(value) == "string" then copy[ENVIRONMENT[i]] = value end
  end
  copy.inherited = inherited(environment)
end

-- The options of all parts, among them those of parts that are judged later. Whether any is of GPUs.
local function read_parts(job_desc, copy)
  if job_desc.het_job_offset ~= 0 then return false end
  local stdin, found = job_desc.std_in, false
  if type(stdin) ~= "string" or stdin == "" then return false end
  local environment = job_desc.environment
  for i = 1, #OF_PARTS, 2 do
    local value = environment[OF_PARTS[i]]
    if type(value) == "string" and #value <= MAX_PART_BYTES then
      copy[OF_PARTS[i]], found = value, true
      value = environment[OF_PARTS[i + 1]]
      if type(value) == "string" and #value <= MAX_PART_BYTES then copy[OF_PARTS[i + 1]] = value end
    end
  end
  return found
end

-- The program that asks for an interactive job: it decides what the job's steps will ask for. From
-- 24.11 on salloc sends its command line as srun does; then the name tells, where the user gave
-- none: salloc's is "interactive", srun's that of its program. No other field differs, and other
-- names are nobody's business.
local function client_of(job_desc)
  local argc, name = job_desc.argc, job_desc.name
  if type(argc) ~= "number" or argc < 1 or argc >= NO_VAL or name == "interactive" then
    return "salloc"
  end
  if slurm.GRES_ALLOW_TASK_SHARING == nil or type(name) ~= "string" then return "srun" end
  local argv = job_desc.argv
  local program = type(argv) == "table" and argv[0]
  if type(program) == "string" and program:match("[^/]*$") == name then return "srun" end
  return "either"
end

-- What only a new job tells. In a modify the offset reads 0 for every job.
local function read_origin(job_desc, copy)
  local offset = job_desc.het_job_offset
  if type(offset) == "number" and offset < NO_VAL then copy.het_offset = offset end
  -- sbatch names a file for standard input; the script itself may be megabytes and is copied.
  if not copy.std_in and type(job_desc.script) == "string" then copy.has_script = 1 end
  if job_desc.cron_job == true then copy.cron_job = 1 end
  if copy.account == nil then
    local account = job_desc.default_account
    if type(account) == "string" then copy.default_account = account end
  end
  if not (copy.has_script or copy.std_in or copy.cron_job) then
    copy.client = client_of(job_desc)
  end
  read_environment(job_desc, copy)
end

-- Of a job that is there; its script would be read from disk and is left alone.
local function read_record(job_rec, copy)
  read_rest(job_rec, copy)
  local reservation, leader = job_rec.resv_name, job_rec.het_job_id
  copy.reservation = type(reservation) == "string" and reservation or nil
  if type(leader) == "number" and leader > 0 then copy.het_offset = job_rec.het_job_offset end
end

local function overlong(copy)
  for i = 1, #TRES_FIELDS do
    local value = copy[TRES_FIELDS[i]]
    if value and #value > MAX_TRES_BYTES then return TRES_FIELDS[i] end
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

for _, names in ipairs({ TRES_FIELDS, TEXT_FIELDS, NUMBER_FIELDS, ENVIRONMENT, OF_PARTS }) do
  for _, name in ipairs(names) do
    if name ~= "time_limit" then WIRE_ORDER[#WIRE_ORDER + 1] = name end
  end
end
local COMMON = #WIRE_ORDER - #OF_PARTS -- so many are looked for in each job
local FIRST_KEY, NEXT_KEY = {}, {}
for i, name in ipairs(WIRE_ORDER) do
  FIRST_KEY[i], NEXT_KEY[i] = '{"' .. name .. '":', ',"' .. name .. '":'
end

-- The pieces of one line; kept from call to call, since it is as long each time.
local pieces = {}

local function put_fields(copy, count)
  local keys = FIRST_KEY
  for i = 1, copy.het_offset == 0 and #WIRE_ORDER or COMMON do
    local value = copy[WIRE_ORDER[i]]
    if value ~= nil then
      pieces[count + 1] = keys[i]
      pieces[count + 2] = type(value) == "number" and string.format("%.0f", value) or quote(value)
      count, keys = count + 2, NEXT_KEY
    end
  end
  pieces[count + 1] = keys == FIRST_KEY and "{}" or "}"
  return count + 1
end

local LINE_HEAD = '{"v":' .. string.format("%.0f", PROTOCOL) .. ',"id":"'
local LINE_MIDDLE = '","verb":"%s","spelling":"%s","job":'

-- Put the line's pieces in place and return their number.
local function put_request(id, verb, spelling, job, record)
  pieces[1], pieces[2] = LINE_HEAD, id
  pieces[3] = string.format(LINE_MIDDLE, verb, spelling)
  local count = put_fields(job, 3)
  if record then
    pieces[count + 1] = ',"record":'
    count = put_fields(record, count + 1)
  end
  pieces[count + 1] = "}\n"
  return count + 1
end

-- What is behind user and time limit in a submission, of which alone answers are kept.
local function key_of(verb, count)
  if verb ~= "submit" or pieces[4] ~= FIRST_KEY[1] then return nil end
  local key = table.concat(pieces, "", pieces[6] == NEXT_KEY[2] and 8 or 6, count)
  return #key <= MAX_KEPT_BYTES and key or nil
end

local function reuse_line(id, ref, job)
  local limit = job.time_limit and string.format(',"time_limit":%.0f', job.time_limit) or ""
  return string.format('%s%s","verb":"reused","ref":%.0f,"job":{"user_id":%.0f%s}}\n',
    LINE_HEAD, id, ref, job.user_id, limit)
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

local function is_count(value, unset)
  return type(value) == "number" and value >= 0 and value < unset and value == math.floor(value)
end

local function check_edit(name, value, spelling, job)
  local kind = KINDS[name]
  if not kind then return false end
  if kind == "short" then return is_count(value, NO_VAL_16) end
  if kind == "count" or kind == "memory" then return is_count(value, NO_VAL) end
  if type(value) ~= "string" or #value > MAX_EDIT_BYTES or value:find("%c") then return false end
  if kind == "environment" then return job[name] ~= nil end
  return kind ~= "gres" or value == "" or check_gres(value, spelling)
end

local function check_text(value)
  return value == nil
    or (type(value) == "string" and #value <= MAX_SAY_BYTES and not value:gsub("\n", ""):find("%c"))
end

local function check_edits(edits, spelling, job)
  for name, value in pairs(edits) do
    if not check_edit(name, value, spelling, job) then
      error("bad edit of " .. string.format("%.40s", tostring(name)))
    end
  end
  if edits.min_mem_per_node and edits.min_mem_per_cpu then error("two edits of the memory") end
end

-- The decoded answer to this very request with its edits; raises where anything is not right.
local function read_answer(line, id, spelling, job)
  local answer = decode(line)
  if type(answer) ~= "table" or answer == NULL then error("answer is no object") end
  if answer.v ~= PROTOCOL then error("answer of another protocol version") end
  if answer.id ~= id then error("answer to another request") end
  if answer.act ~= "accept" and answer.act ~= "reject" then error("answer without a decision") end
  if not check_text(answer.say) then error("bad text in the answer") end
  local edits = answer.set == nil and {} or answer.set
  if type(edits) ~= "table" or edits == NULL then error("bad edits in the answer") end
  check_edits(edits, spelling, job)
  return answer, edits
end

local COMMENT_HEAD = 'fairwatt:{"v":1,"id":"'

-- Keep an answer, if policyd says for how many seconds; `uid`: for this user only; `lo`, `hi`: for
-- all time limits between. The record of the decision in the comment names the request, so its
-- place there is kept apart.
local function keep(key, id, answer, edits, job, now)
  local terms = answer.keep
  if type(terms) ~= "table" or not is_count(terms.s, MAX_KEPT_S + 1) then return end
  if not is_count(terms.ref, 2 ^ 53) then return end
  local limit = job.time_limit or NO_LIMIT
  local low, high = terms.lo or limit, terms.hi or limit
  if type(low) ~= "number" or type(high) ~= "number" then return end
  if limit < low or limit > high or (limit == NO_LIMIT and high > NO_LIMIT) then return end
  local comment, head = edits.admin_comment, COMMENT_HEAD .. id .. '"'
  local ours = comment ~= nil and comment:sub(1, #head) == head
  add_kept(key, {
    answer = answer, edits = edits, ref = terms.ref, uid = terms.uid, from = now,
    stop = now + terms.s, low = low, high = high,
    tail = ours and comment:sub(#COMMENT_HEAD + #id + 1) or nil,
  })
end

local function is_good(entry, job, limit, now)
  return now >= entry.from and now < entry.stop and limit >= entry.low and limit <= entry.high
    and (entry.uid == nil or entry.uid == job.user_id)
end

-- What is kept for such a job of this user and is good now.
local function recall(key, job, now)
  local newest = kept[key] or kept_before[key]
  local limit, entry = job.time_limit or NO_LIMIT, newest
  while entry and not is_good(entry, job, limit, now) do entry = entry.older end
  if entry and kept[key] == nil then put_kept(key, newest) end
  return entry
end

local function edits_for(entry, id)
  local edits = entry.edits
  if entry.tail then edits.admin_comment = COMMENT_HEAD .. id .. entry.tail end
  return edits
end

local function read(job_desc, name)
  if KINDS[name] == "environment" then return job_desc.environment[name] end
  return job_desc[name]
end

local function write(job_desc, name, value)
  if KINDS[name] == "environment" then
    job_desc.environment[name] = value
  else
    job_desc[name] = value
  end
end

-- `before` gets what the field held, or false.
local function write_one(job_desc, name, value, before)
  before[name] = read(job_desc, name) or false
  write(job_desc, name, value)
end

local function write_all(job_desc, edits, before)
  for name, value in pairs(edits) do
    if IS_OF_PART[name] then write_one(job_desc, name, value, before) end
  end
  for i = 1, #WRITE_ORDER do
    local name = WRITE_ORDER[i]
    if edits[name] ~= nil then write_one(job_desc, name, edits[name], before) end
  end
end

-- Whether all is as it was: Slurm cannot express every value, so each is read again. Of memory,
-- written last, only a failed write comes here.
local function restore(job_desc, before)
  local whole = true
  for name, value in pairs(before) do
    if KINDS[name] ~= "memory" then pcall(write, job_desc, name, value or "") end
    local done, now = pcall(read, job_desc, name)
    if not done or (now or false) ~= value then whole = false end
  end
  return whole
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

local function printable(why)
  return (tostring(why):gsub("%c", " "):sub(1, 500))
end

-- One line to the user and, unless it is nil, one counted line in the log.
local function report(verb, text, logged)
  unapplied = unapplied + 1
  if logged then
    pcall(log, string.format("%s [%.0f since this script was loaded]", logged, unapplied))
  end
  pcall(tell, verb, text)
end

-- The policy cannot be applied: the fail mode, or a refusal where edits could not be taken back.
local function give_up(verb, reason, detail, damaged)
  local mode = damaged and "closed" or settings.fail_mode
  local text = string.format(NOT_APPLIED, reason, CONSEQUENCES[mode][verb])
  local logged = detail and text .. ": " .. printable(detail) or text
  report(verb, text, reason ~= PAUSED and logged or nil)
  return mode == "closed" and REFUSED or SUCCESS
end

local function refuse(verb, text)
  pcall(tell, verb, text)
  return REFUSED
end

local function next_id(now)
  serial = serial + 1
  return string.format("%.0f-%.0f", now * 1e6, serial)
end

-- All edits or none. The user is told last, so that he is not told of what was then taken back.
local function carry_out(verb, job_desc, answer, edits)
  if answer.act == "reject" then return refuse(verb, answer.say or "fairwatt: refused") end
  local before = {}
  local done, why = pcall(write_all, job_desc, edits, before)
  if not done then
    return give_up(verb, "error in the hook", why, not restore(job_desc, before))
  end
  if answer.say then pcall(tell, verb, answer.say) end
  return SUCCESS
end

local function ask(verb, job_desc, job, record)
  local long = overlong(job) or (record and overlong(record))
  if long then return refuse(verb, "fairwatt FW003: " .. long .. " is too long; shorten it") end
  local now = has_socket and socket.gettime() or 0
  local id, spelling = next_id(now), server_spelling()
  local count = put_request(id, verb, spelling, job, record)
  local key = key_of(verb, count)
  local entry = key and recall(key, job, now)
  if entry and tell_policyd(reuse_line(id, entry.ref, job)) then
    return carry_out(verb, job_desc, entry.answer, edits_for(entry, id))
  end
  local line, why = exchange(table.concat(pieces, "", 1, count))
  if not line then return give_up(verb, why) end
  local valid, answer, edits = pcall(read_answer, line, id, spelling, job)
  if not valid then
    hang_up() -- the stream may be out of step; the daemon is quick, so no pause
    return give_up(verb, "policyd: " .. printable(answer):gsub("^.-:%d+: ", ""))
  end
  if key then keep(key, id, answer, edits, job, now) end
  return carry_out(verb, job_desc, answer, edits)
end

local function on_submit(job_desc)
  local job = read_tres(job_desc)
  local concerned = settings.jobs == "all" or mentions_gpu(job) or implies_gpu(job_desc)
    or takes_whole_nodes(job_desc)
  if read_parts(job_desc, job) then concerned = true end
  if not concerned then return SUCCESS end
  read_rest(job_desc, job)
  read_origin(job_desc, job)
  return ask("submit", job_desc, job)
end

local function on_modify(job_desc, job_rec, _, uid)
  if uid == 0 then return SUCCESS end
  local job, record = read_tres(job_desc), read_tres(job_rec)
  read_counted(job_rec, record)
  if settings.jobs == "gpu" and not mentions_gpu(job) and not mentions_gpu(record)
    and not is_marked_whole(job_rec) then
    return SUCCESS
  end
  read_rest(job_desc, job)
  read_record(job_rec, record)
  return ask("modify", job_desc, job, record)
end

-- A script that cannot be loaded is at fault in every call.
local function site_functions()
  if not settings.site_script then return nil, nil end
  slurm_job_submit, slurm_job_modify = nil, nil
  local loaded, why = pcall(dofile, settings.site_script)
  if loaded then return slurm_job_submit, slurm_job_modify end
  local function fault() error(why, 0) end
  return fault, fault
end

local site_submit, site_modify = site_functions()

local SITE_CONSEQUENCES = {
  open = "it is passed over", closed = "the request is refused, try again in a minute",
}

-- What the site's script changes is its own; its refusal stands, its fault is the fail mode.
local function run_site(verb, site, ...)
  if type(site) ~= "function" then return SUCCESS end
  local done, code = pcall(site, ...)
  if done then return type(code) == "number" and code or SUCCESS end
  local text = string.format(SITE_FAILED, SITE_CONSEQUENCES[settings.fail_mode])
  report(verb, text, text .. ": " .. printable(code))
  return settings.fail_mode == "closed" and REFUSED or SUCCESS
end

local function run_both(verb, site, body, ...)
  local site_first = settings.site_order == "before"
  local code
  if site_first then code = run_site(verb, site, ...) else code = body(...) end
  if code ~= SUCCESS then return code end
  if site_first then return body(...) end
  return run_site(verb, site, ...)
end

-- Nothing raises out of here: a fault of ours is the fail mode, the same on every release.
local function guarded(verb, site, body, ...)
  local done, code = pcall(run_both, verb, site, body, ...)
  if done then return code end
  local ended, answer = pcall(give_up, verb, "error in the hook", code)
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
