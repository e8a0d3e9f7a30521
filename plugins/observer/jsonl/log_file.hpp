// Is a file that lines are appended to, each with one write(2), or a pipe that takes what it has room for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "outlet.hpp"

namespace prun::jsonl {

// Says whether a path may lead elsewhere: a path that the user names may, a name in the run's folder may not.
enum class Links { followed, refused };

class LogFile {
 public:
  // Makes missing folders, appends to a file that is there. A last line that a killed process left unfinished
  // is ended first, so that it spoils no other. All functions here throw storage, naming the path.
  explicit LogFile(std::string path, Links links = Links::followed);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // A line into a pipe or terminal that stands still is not written but counted; before the next line that is
  // written stands {"type":"lost","lines":N}.
  void append(std::string_view line);
  // Returns when what was appended is on the disk, so that it outlives a crash of the machine.
  void flush();

 private:
  // Owns the descriptor from here on, whatever the public constructor still throws.
  LogFile(std::string path, int descriptor);
  [[noreturn]] void fail(const char* action) const;
  bool ends_within_line() const;
  void expect_alone() const;
  void expect_only_name() const;
  void expect_named() const;
  void offer(std::string_view line);
  std::string lost_lines() const;  // the record of those lines

  std::string path_;
  int descriptor_;
  std::optional<observer::Outlet> outlet_;  // is used for pipes and terminals
  std::int64_t lost_ = 0;
  bool within_line_ = false;
};

}  // namespace prun::jsonl
