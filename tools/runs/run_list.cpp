#include "runs/run_list.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "runs/log.hpp"
#include "runs/words.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- status

// Says how its last part ended.
std::string ending(const RunLog& log) {
  const double began = log.start() ? log.start()->time : 0;
  for (auto event = log.events.rbegin(); event != log.events.rend() && event->time >= began; ++event)
    if (event->kind == "failed" || event->kind == "stopped") return event->kind;
  return log.finish ? "done" : "died";
}

}  // namespace

RunStatus status_of(const std::filesystem::path& folder, const RunLog& log) {
  const std::optional<RunHolder> holder = holder_of(folder);
  if (holder && holder->alive) return {"running", holder};
  if (holder && !holder->here) return {"at " + holder->host, holder};
  return {ending(log), holder};
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

// ------------------------------------------------------------------- run list

namespace fs = std::filesystem;

constexpr std::int64_t tail_bytes = 8192;
constexpr std::size_t longest_name = 40;

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "log.jsonl", ignored) ||
         fs::is_regular_file(folder / "recipe.toml", ignored);
}

RunLog tail_of(const fs::path& folder) {
  const fs::path file = folder / "log.jsonl";
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) ? read_log_tail(file, tail_bytes) : RunLog();
}

RunRow row_of(const fs::path& folder) {
  const RunLog log = tail_of(folder);
  RunRow row;
  row.folder = folder;
  row.name = printable(folder.filename().string(), longest_name);
  row.state = status_of(folder, log).state;
  row.steps = log.steps_to_do;
  row.said_at = log.last_time();
  if (log.steps.empty()) return row;
  const LoggedStep& last = log.steps.back();
  row.step = last.step;
  row.loss = last.loss;
  row.tokens_per_second = last.tokens_per_second;
  return row;
}

// A run that cannot be read stands among the others and says so.
RunRow row_or_reason(const fs::path& folder) {
  try {
    return row_of(folder);
  } catch (const Error&) {
    RunRow row;
    row.folder = folder;
    row.name = printable(folder.filename().string(), longest_name);
    row.state = "unreadable";
    return row;
  }
}

}  // namespace

std::vector<RunRow> list_runs(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw_error(ErrorCode::not_found, "there is no folder ", folder.string(),
                "; runs lie in runs/, or where run.out says");
  std::vector<RunRow> rows;
  if (is_run(folder)) return {row_or_reason(folder)};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (is_run(entry.path())) rows.push_back(row_or_reason(entry.path()));
  if (error)
    throw_error(ErrorCode::bad_input, "cannot read the folder ", folder.string(), ": ", error.message());
  std::sort(rows.begin(), rows.end(), [](const RunRow& a, const RunRow& b) {
    return a.said_at != b.said_at ? a.said_at > b.said_at : a.name < b.name;
  });
  return rows;
}

std::string runs_text(const std::vector<RunRow>& rows, double now) {
  std::vector<std::vector<std::string>> cells = {{"run", "state", "step", "loss", "tokens/s", "last word"}};
  for (const RunRow& row : rows) {
    const std::string of = row.steps > 0 ? "/" + std::to_string(row.steps) : "";
    cells.push_back({row.name, row.state, std::to_string(row.step) + of,
                     row.step > 0 ? number_word(row.loss) : "",
                     row.tokens_per_second > 0 ? rate_word(row.tokens_per_second) : "",
                     row.said_at > 0 ? duration_word(now - row.said_at) + " ago" : "none"});
  }
  return columns_text(cells);
}

std::string runs_json(const std::vector<RunRow>& rows) {
  JsonWriter json(NonFinite::write_null);
  json.begin_array();
  for (const RunRow& row : rows) {
    json.begin_object().member("name", row.name).member("folder", printable(row.folder.string(), 4096));
    json.member("state", row.state).member("step", row.step).member("steps", row.steps);
    json.member("loss", row.loss).member("tokens_per_second", row.tokens_per_second);
    json.member("time", row.said_at).end_object();
  }
  return json.end_array().take();
}

namespace {

// ------------------------------------------------------------------- runs verb
// Implements prun runs: it lists the runs of a folder, started here or elsewhere.

int runs_command(const Arguments& arguments) {
  const std::vector<RunRow> rows = list_runs(arguments.words.empty() ? "runs" : arguments.words[0]);
  const std::string text = arguments.has("--json") ? runs_json(rows) + "\n" : runs_text(rows, now_seconds());
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> runs_verb() {
  return {{"runs",
           "[FOLDER]",
           "the runs in runs/ or FOLDER: state, step, loss, tokens a second",
           {json_option},
           runs_command}};
}

}  // namespace prun
