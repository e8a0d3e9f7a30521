// What a process asks of a file system below one folder, in order: so that every state can be made that a
// crash may leave.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace prun::test {

struct FileCall {
  enum class Kind : std::uint8_t { create, make_folder, write, sync, rename, exchange, remove };
  Kind kind = Kind::create;
  std::int64_t node = 0;    // the file or folder: made, written, synced
  std::int64_t folder = 0;  // that has the name that changes
  std::string path, to;     // relative to the folder that is watched
  std::int64_t offset = 0;
  std::string bytes;
};

// One at a time.
class FileRecorder {
 public:
  explicit FileRecorder(const std::filesystem::path& root);
  ~FileRecorder();
  FileRecorder(const FileRecorder&) = delete;
  FileRecorder& operator=(const FileRecorder&) = delete;

  // Up to now.
  std::vector<FileCall> calls() const;

  struct Watch;

 private:
  std::unique_ptr<Watch> watch_;
};

}  // namespace prun::test
