// Reads files of text that may be compressed, as their names say: gzip (*.gz) and zstd (*.zst). The rows of a
// Parquet file
// (*.parquet) are read as JSON lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.hpp"
#include "lines/unpacking.hpp"

namespace prun {

// ------------------------------------------------------------------- parquet rows
// Reads the rows of a Parquet file as JSON lines, through a library that is loaded for the first of them.

class ParquetRows {
 public:
  // Throws unsupported where the library is not there, bad_input where the file is none.
  explicit ParquetRows(std::filesystem::path file);
  ParquetRows(ParquetRows&&) noexcept;
  ParquetRows& operator=(ParquetRows&&) noexcept;
  ~ParquetRows();

  // Returns how many bytes it has put at the front of `room`; 0 at the end.
  std::size_t read(std::span<char> room);

 private:
  struct Library;
  static const Library& library(const std::filesystem::path& file);

  std::filesystem::path path_;
  std::unique_ptr<void, void (*)(void*)> rows_;
};

// ------------------------------------------------------------------- text reader

// The name that the text would have if it were not compressed: a.jsonl of a.jsonl.zst and of a.parquet.
std::filesystem::path plain_name(const std::filesystem::path& file);

// Returns the file itself, or the files of JSON lines in a folder (*.jsonl, *.ndjson, compressed or not), by
// their names byte by byte; none if there is neither.
std::vector<std::filesystem::path> json_line_files(const std::filesystem::path& path);

// Reads the bytes of the text, in order. Memory does not grow with the file. Damage, a missing end and a
// library that this build lacks are reported with the file, and its byte where reading ended.
class TextReader {
 public:
  explicit TextReader(std::filesystem::path file);

  // Returns how many bytes it has put at the front of `room`; 0 at the end of the text.
  std::size_t read(std::span<char> room);

 private:
  std::size_t read_file(std::span<char> room);
  void refill();
  [[noreturn]] void refuse(std::string_view what) const;

  std::filesystem::path path_;
  FileDescriptor file_;
  std::unique_ptr<Unpacking> unpacking_;  // none: the file is the text
  std::optional<ParquetRows> rows_;       // or has these
  std::vector<char> buffer_;
  std::span<const char> packed_;  // of the buffer, not unpacked yet
  std::uint64_t taken_ = 0;       // bytes of the file
  bool at_end_ = false;
};

// Reads the lines of a text, as std::getline splits them.
class LineReader {
 public:
  explicit LineReader(std::filesystem::path file) : text_(std::move(file)), piece_(std::size_t{1} << 16) {}

  // Reads the next line without its end; returns false where there is none.
  bool next(std::string& line);

 private:
  TextReader text_;
  std::vector<char> piece_;
  std::string_view left_;  // of the piece
};

}  // namespace prun
