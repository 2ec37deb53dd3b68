-- SPDX-License-Identifier: Apache-2.0
--
-- fairwatt's client filter, for srun and salloc (CliFilterPlugins=lua, beside slurm.conf).
--
-- The submit hook can rewrite a job, not the step that srun starts in it: srun repeats its options
-- as they were typed, and "gpu:20gb" is then not found in the job. So a GPU type that cannot be a
-- Slurm type as it stands (a memory size, a bare MIG profile, capitals) is sent through the hook
-- once by `sbatch --test-only`, and the options are rewritten by what the hook says. A help for
-- users, no policy: nothing depends on it, and whatever fails here leaves the options alone.

local OPTIONS = { "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket" }
local CONTEXT = { "partition", "account", "qos", "nodelist", "exclude", "reservation" }
local NUMBERS = { "ntasks", "nodes", "ntasks-per-node" } -- unset ones read as -2 or "1-0"

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

local function needs_help(name, item)
  if name == "gres" and not item:match("^gpu:") then return false end
  local kind = type_of(item)
  return kind ~= nil and (kind:match("^%d") ~= nil or kind:match("%u") ~= nil)
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

-- What the hook made of each type, and its lines.
local function ask_hook(options)
  local pipe = io.popen(test_command(options))
  if not pipe then return {}, {} end
  local types, lines = {}, {}
  for line in pipe:lines() do
    line = line:gsub("^sbatch: error: ", "sbatch: ") -- so it is where the job cannot start now
    local text = line:match("^sbatch: (fairwatt FW%d+: .*)")
    local asked, given = line:match("^sbatch: fairwatt FW%d+: (gpu:%S+) %-> (gpu:%S+): ")
    if asked and not (asked .. given):find(",") then
      types[type_of(asked)] = type_of(given)
      lines[#lines + 1] = text
    end
  end
  pipe:close()
  return types, lines
end

local function rewritten(value, types)
  local items = {}
  for item in value:gmatch("[^,]+") do
    local kind = type_of(item)
    if kind and types[kind] then
      local from, to = item:find(kind, 1, true)
      item = item:sub(1, from - 1) .. types[kind] .. item:sub(to + 1)
    end
    items[#items + 1] = item
  end
  return table.concat(items, ",")
end

local function help(options)
  if options["type"] ~= "srun" and options["type"] ~= "salloc" then return end
  if not any_needs_help(options) then return end
  local types, lines = ask_hook(options)
  for _, name in ipairs(OPTIONS) do
    local value = value_of(options, name)
    local new = rewritten(value, types)
    if new ~= value then options[name] = new end
  end
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
