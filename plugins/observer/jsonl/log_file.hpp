// A file that lines are appended to, each with one write(2).
#pragma once

#include <string>
#include <string_view>

namespace prun::jsonl {

class LogFile {
 public:
  // Makes missing folders, appends to a file that is there. A last line that a killed process left unfinished
  // is ended first, so that it spoils no other. Everything here throws storage, naming the path.
  explicit LogFile(std::string path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  void append(std::string_view line);
  // Returns when what was appended is on the disk, so that it outlives a crash of the machine.
  void flush();

 private:
  // Owns the descriptor from here on, whatever the public constructor still throws.
  LogFile(std::string path, int descriptor);
  [[noreturn]] void fail(const char* action) const;
  bool ends_within_line() const;
  void expect_named() const;

  std::string path_;
  int descriptor_;
  bool within_line_ = false;
};

}  // namespace prun::jsonl
