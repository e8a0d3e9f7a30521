#include "launch/kernel_word.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/durable_file.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

constexpr std::size_t longest_line = 300;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the number after a word, of which these files have one a line.
std::optional<std::int64_t> count_in(const std::string& path, const std::string& word) {
  std::istringstream lines(text_of(path));
  std::string key;
  for (std::int64_t value = 0; lines >> key >> value;)
    if (key == word) return value;
  return {};
}

// Reads the kernel's log, whose records come one by one until there is none; some may have been overwritten
// meanwhile.
std::string log_text(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string text;
  char record[8192];
  constexpr std::size_t most = std::size_t{16} << 20;
  while (file.is_open() && text.size() < most) {
    const ssize_t count = ::read(file.get(), record, sizeof record);
    if (count < 0 && (errno == EINTR || errno == EPIPE)) continue;
    if (count <= 0) break;
    text.append(record, static_cast<std::size_t>(count));
  }
  return text;
}

struct GroupFiles {
  std::string events, limit;
};

// Lists the files of both versions of control groups; a container may see its own group as the root.
std::vector<GroupFiles> group_files(const KernelFiles& files) {
  std::vector<GroupFiles> found;
  std::istringstream lines(text_of(files.membership));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string_view> words = split(line, ':');
    if (words.size() != 3) continue;
    for (const std::string& path : {std::string(words[2]), std::string()}) {
      if (words[1].empty())
        found.push_back({files.groups + path + "/memory.events", files.groups + path + "/memory.max"});
      if (words[1] == "memory")
        found.push_back({files.groups + "/memory" + path + "/memory.oom_control",
                         files.groups + "/memory" + path + "/memory.limit_in_bytes"});
    }
  }
  return found;
}

bool has_risen(const std::optional<std::int64_t>& before, const std::optional<std::int64_t>& now) {
  return before && now && *now > *before;
}

std::string limit_text(const std::string& path) {
  const std::string text(trim(text_of(path)));
  constexpr double no_limit = 1e18;  // the old version writes a number that means no limit
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stod(text) > no_limit) return "";
  return "; its limit is " + size_text(std::stod(text)) + ", in " + path;
}

}  // namespace

KernelWord::KernelWord(KernelFiles files) : files_(std::move(files)) {
  group_kills_ = group().kills;
  all_kills_ = count_in(files_.counters, "oom_kill");
}

KernelWord::Group KernelWord::group() const {
  for (const GroupFiles& files : group_files(files_))
    if (const auto kills = count_in(files.events, "oom_kill")) return {files.limit, kills};
  return {};
}

std::optional<std::string> KernelWord::line_about(pid_t pid) const {
  const std::string text = log_text(files_.log), word = detail::concat("Killed process ", pid, " (");
  const std::size_t at = text.rfind(word);
  if (at == std::string::npos) return {};
  return printable(text.substr(at, text.find('\n', at) - at), longest_line);
}

std::string KernelWord::of(pid_t pid) const {
  const std::string lack = "the kernel ended it for want of memory";
  if (const auto line = line_about(pid)) return lack + ": " + *line;
  const Group now = group();
  if (has_risen(group_kills_, now.kills))
    return lack + ": it has ended " + std::to_string(*now.kills - *group_kills_) +
           " of this control group's processes since the start" + limit_text(now.limit);
  if (has_risen(all_kills_, count_in(files_.counters, "oom_kill")))
    return "it may have been for want of memory: since the start the kernel has ended processes of this "
           "machine "
           "for that";
  return "the kernel has counted nobody that it ended for want of memory; somebody sent the signal";
}

}  // namespace prun
