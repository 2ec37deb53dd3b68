-- SPDX-License-Identifier: Apache-2.0
--
-- fairwatt's client filter, for srun and salloc (CliFilterPlugins=lua, beside slurm.conf).
--
-- The submit hook can rewrite a job, not the step that srun starts in it: srun repeats its options
-- as they were typed, and "gpu:20gb" is then not found in the job. So a GPU type that is hardly a
-- Slurm type as it stands (a memory size, a word, a choice, a bare MIG profile, capitals) is sent
-- through the hook once by `sbatch --test-only`, and the options are rewritten by what the hook
-- says. A help for users, no policy: nothing depends on it, and whatever fails here leaves the
-- options alone.

local OPTIONS = {
  "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket",
  "tres-per-task", -- 23.11 and later
}
local NAMED = { ["gres"] = true, ["tres-per-task"] = true } -- values begin with the resource
local CONTEXT = {
  "partition", "account", "qos", "nodelist", "exclude", "reservation", "constraint",
}
local NUMBERS = { "ntasks", "nodes", "ntasks-per-node", "sockets-per-node" } -- unset: -2 or "1-0"

local function quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- An option's value without the prefix that Slurm has already put before each GRES.
local function value_of(options, name)
  local value = options[name]
  if type(value) ~= "string" then return "" end
  return (("," .. value):gsub(",gres[:/]", ","):sub(2))
end

-- The type of `gpu:TYPE:2`, `TYPE:2` or `TYPE`; nil for a mere count.
local function type_of(item)
  local bare = item:gsub("^gpu:", ""):gsub("[:=]%d+$", "")
  if bare == "" or bare == "gpu" or bare:match("^%d+$") then return nil end
  return bare
end

-- Slurm types look like a100 or a100_3g.20gb; what does not is worth a question.
local function is_plain(kind)
  return kind:match("^%l[%l%d_.%-]*$") and kind:match("%d")
    and not kind:match("^mig%-") and not kind:match("^nvidia")
end

local function needs_help(name, item)
  if NAMED[name] and not item:match("^gpu:") then return false end
  local kind = type_of(item)
  return kind ~= nil and not is_plain(kind)
end

local function any_needs_help(options)
  for _, name in ipairs(OPTIONS) do
    for item in value_of(options, name):gmatch("[^,]+") do
      if needs_help(name, item) then return true end
    end
  end
  return false
end

local function test_command(options)
  local parts = { "sbatch --test-only --wrap=true" }
  for _, names in ipairs({ OPTIONS, CONTEXT }) do
    for _, name in ipairs(names) do
      local value = value_of(options, name)
      if value ~= "" and not value:find("%c") then
        parts[#parts + 1] = "--" .. name .. "=" .. quote(value)
      end
    end
  end
  for _, name in ipairs(NUMBERS) do
    local value = tostring(options[name]):gsub("%-0$", "")
    if value:match("^[1-9][%d-]*$") then parts[#parts + 1] = "--" .. name .. "=" .. value end
  end
  return table.concat(parts, " ") .. " 2>&1"
end

-- What a line says: the entry asked for, the one given, the constraint that goes with it.
local function read_line(text)
  local asked, given = text:match("^fairwatt FW%d+: (gpu:%S+) %-> (gpu:%S+): ")
  if asked then return asked, given, nil end
  return text:match("^fairwatt FW%d+: (gpu:%S+) %-> (gpu:%S+) %-C '([^']+)': ")
end

-- What the hook made of each type ("": none), its lines, and other options that go with it.
local function ask_hook(options)
  local types, lines, others = {}, {}, {}
  local pipe = io.popen(test_command(options))
  if not pipe then return types, lines, others end
  for line in pipe:lines() do
    line = line:gsub("^sbatch: error: ", "sbatch: ") -- so it is where the job cannot start now
    local text = line:match("^sbatch: (.*)") or ""
    local asked, given, features = read_line(text)
    local kind = asked and type_of(asked)
    if kind and not (asked .. given):find(",") and not (features or ""):find("...", 1, true) then
      types[kind] = type_of(given) or ""
      lines[#lines + 1] = text
      others.constraint = features
      others.partition = features and text:match(" in partition (%S+) is free first")
    end
  end
  pipe:close()
  return types, lines, others
end

-- `gpu:20gb:1` with another type, or with "" `gpu:1`; where the type stood alone, one is meant.
local function retyped(item, kind, new)
  local from, to = item:find(kind, 1, true)
  local before, after = item:sub(1, from - 1), item:sub(to + 1)
  if new ~= "" then return before .. new .. after end
  local untyped = before == "" and after:sub(2) or before:sub(1, -2) .. after
  return untyped == "" and "1" or untyped
end

local function rewritten(value, types)
  local items = {}
  for item in value:gmatch("[^,]+") do
    local kind = type_of(item)
    if kind and types[kind] then item = retyped(item, kind, types[kind]) end
    items[#items + 1] = item
  end
  return table.concat(items, ",")
end

local function help(options)
  if options["type"] ~= "srun" and options["type"] ~= "salloc" then return end
  if not any_needs_help(options) then return end
  local types, lines, others = ask_hook(options)
  for _, name in ipairs(OPTIONS) do
    local value = value_of(options, name)
    local new = rewritten(value, types)
    -- The step of a 24.11 srun reads no other spelling there.
    if name == "tres-per-task" then new = ("," .. new):gsub(",gpu", ",gres/gpu"):sub(2) end
    if new ~= value and next(types) then options[name] = new end
  end
  for name, value in pairs(others) do options[name] = value end
  for _, line in ipairs(lines) do slurm.log_info("%s", line) end
end

function slurm_cli_setup_defaults(options, early_pass)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
  pcall(help, options)
  return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end

return slurm.SUCCESS
