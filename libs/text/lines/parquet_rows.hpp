// Reads the rows of a Parquet file as JSON lines, through a library that is loaded for the first of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace prun {

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

}  // namespace prun
