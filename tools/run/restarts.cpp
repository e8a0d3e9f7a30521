#include "run/restarts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <optional>

#include "base/durable_file.hpp"
#include "base/utc.hpp"
#include "prun/visible.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Says whether another attempt may succeed; a recipe that is refused, a full disk or a loss that diverges
// stay as they are.
bool is_lost(int code) {
  for (const ErrorCode lost : {ErrorCode::rank_died, ErrorCode::hang, ErrorCode::comm_failed})
    if (code == exit_code(lost)) return true;
  return false;
}

// Writes a line down. What ends a run must not be hidden by a file that cannot be written. It is never
// written through a link, which leads elsewhere.
void write_down(const fs::path& file, std::string_view line) {
  const FileDescriptor open(
      ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (open.is_open()) (void)!::write(open.get(), line.data(), line.size());
}

// Returns the checkpoint that a run would go on from, or nothing if there is none.
std::optional<fs::path> last_checkpoint(const fs::path& run_folder) {
  try {
    return find_checkpoint(run_folder);
  } catch (const Error&) {
    return {};
  }
}

// Returns the number of its save, or 0 if there is none.
std::int64_t last_save(const fs::path& run_folder) {
  try {
    const std::optional<fs::path> last = last_checkpoint(run_folder);
    return last ? read_manifest(*last).save : 0;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

std::string command_to_go_on(const std::string& command, const fs::path& run_folder) {
  return command + (last_save(run_folder) > 0 ? " --set run.resume=" + run_folder.string()
                                              : std::string(" --set run.fresh=true"));
}

int launch_again(LaunchOptions options, const fs::path& run_folder, std::int64_t restarts,
                 const std::string& command) {
  const auto say = [&](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    write_down(run_folder / "failures.log", utc_text(std::time(nullptr)) + " " + visible_lines(line) + "\n");
  };
  options.say = say;
  if (restarts > 0)
    options.next = {};
  else
    options.next = [command, run_folder] { return command_to_go_on(command, run_folder); };
  const std::vector<std::string> words = options.arguments;
  std::int64_t in_a_row = 0;
  for (std::int64_t save = last_save(run_folder);;) {
    const int code = launch(options);
    if (!is_lost(code) || restarts == 0) return code;
    const std::int64_t now = last_save(run_folder);
    in_a_row = now > save ? 1 : in_a_row + 1;
    save = now;
    if (in_a_row > restarts) {
      say(detail::concat("prun: no checkpoint came to be in ", in_a_row,
                         " attempts; giving up after run.restarts = ", restarts));
      return code;
    }
    options.arguments = words;
    if (save > 0)
      options.arguments.insert(options.arguments.end(), {"--set", "run.resume=" + run_folder.string()});
    say(detail::concat(
        "prun: starting the ranks again (", in_a_row, " of ", restarts, " in a row), from ",
        save > 0 ? last_checkpoint(run_folder).value_or(run_folder).string() : "the beginning"));
  }
}

}  // namespace prun
