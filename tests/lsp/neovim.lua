-- Neovim as a client, with the configuration that grammars/README.md gives. By hand, in the root of the repository,
-- with `chunkdsl` on the PATH: nvim --clean --headless -c "luafile tests/lsp/neovim.lua"
-- Edits a spec as a person would, says what was seen, and ends with code 1 where something is not as it should be.
local reference = table.concat(vim.fn.readfile("grammars/README.md"), "\n")
load(reference:match("```lua\n(.-)\n```"))()

local SPEC = [[
# ä😀 sequence-parallel
mesh tp[8] over nvlink
dim M = 1..4096
tensor x : bf16[M @ tp, 1024]                # 😀😀
tensor w : bf16[2048 @ tp, 1024]
policy gather { chunk = 256 along M, via = copy_engine }
op up(x, w) -> y {
    y = gelu(all_gather(x) @ w.T)       with gather
}]]
local path = vim.fn.tempname() .. ".chunk"
vim.fn.writefile(vim.split(SPEC, "\n"), path)
vim.cmd.edit(path)
local buffer = vim.api.nvim_get_current_buf()

local function lines(text)
  if text then vim.api.nvim_buf_set_lines(buffer, 0, -1, false, vim.split(text, "\n")) end
  return table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n")
end

local function expect(what, good, seen)
  print(("%-12s %s"):format(what, vim.inspect(seen):gsub("\n%s*", " ")))
  if not good then print("not as it should be"); vim.cmd.cquit() end
end

local function wait(what, condition) expect(what, vim.wait(60000, condition, 20), #vim.diagnostic.get(buffer)) end

local function client() return vim.lsp.get_clients({ bufnr = buffer, name = "chunkdsl" })[1] end
wait("attached", function() return client() and client().initialized end)

local function ask(method, part, more)
  local before = lines():sub(1, lines():find(part, 1, true) - 1)
  local line = before:match("[^\n]*$")
  local place = { line = select(2, before:gsub("\n", "")), character = vim.str_utfindex(line, client().offset_encoding) }
  local params = { textDocument = vim.lsp.util.make_text_document_params(buffer), position = place }
  return client():request_sync("textDocument/" .. method, vim.tbl_extend("force", params, more or {}), 60000, buffer).result
end

local shown = ask("hover", "all_gather(x)").contents.value
expect("hover", shown:find("Replicate") and shown:find("chunk = 256 along M", 1, true), shown:sub(1, 90))
local offered = vim.tbl_map(function(c) return c.label end, ask("completion", "copy_engine"))
expect("completion", vim.tbl_contains(offered, "tma"), offered)
lines((lines():gsub("gelu%(", "gleu(")))
wait("a mistake", function() return #vim.diagnostic.get(buffer) == 1 end)
local found = vim.diagnostic.get(buffer)[1]
expect("finding", found.code == "CD244" and found.lnum == 7 and found.col == 8, found.message)
local range = { start = { line = 7, character = 8 }, ["end"] = { line = 7, character = 12 } }
local fix = ask("codeAction", "gleu", { range = range, context = { diagnostics = { found.user_data.lsp } } })[1]
vim.lsp.util.apply_workspace_edit(fix.edit, client().offset_encoding)
wait("quick fix", function() return lines() == SPEC and #vim.diagnostic.get(buffer) == 0 end)
lines((lines():gsub(" +#", " #"):gsub("    y", "  y")))
vim.lsp.buf.format({ bufnr = buffer, timeout_ms = 60000 })
expect("formatting", lines() == SPEC, "as before")
local renamed = ask("rename", "M = 1", { newName = "tokens" })
vim.lsp.util.apply_workspace_edit(renamed, client().offset_encoding)
expect("rename", select(2, lines():gsub("tokens", "")) == 3, "in 3 places")
expect("definition", ask("definition", "x) @").range.start.line == 3, "line 4")
vim.cmd("qall!")
