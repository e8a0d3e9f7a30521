#include "lines/parquet_rows.hpp"

#include <dlfcn.h>

#include <array>

#include "parquet/rows.h"
#include "prun/error.hpp"

namespace prun {

// Found as whatever this is part of finds its libraries, and never unloaded.
struct ParquetRows::Library {
  Library() : handle(::dlopen("libprun_parquet.so", RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) return;
    open = reinterpret_cast<prun_parquet_open>(::dlsym(handle, "prun_parquet_open_rows"));
    read = reinterpret_cast<prun_parquet_read>(::dlsym(handle, "prun_parquet_read_rows"));
    close = reinterpret_cast<prun_parquet_close>(::dlsym(handle, "prun_parquet_close_rows"));
  }
  bool whole() const { return open && read && close; }

  void* handle;
  prun_parquet_open open = nullptr;
  prun_parquet_read read = nullptr;
  prun_parquet_close close = nullptr;
};

const ParquetRows::Library& ParquetRows::library(const std::filesystem::path& file) {
  static const Library only;
  if (!only.whole())
    throw_error(ErrorCode::unsupported, file.string(),
                ": this prun was built without Apache Arrow, which reads Parquet; make JSON lines of it "
                "(pandas.read_parquet(FILE).to_json(OUT, orient=\"records\", lines=True)), or install Arrow "
                "(Python: pip install pyarrow) and build again");
  return only;
}

namespace {

using Trouble = std::array<char, 512>;

[[noreturn]] void refuse(const std::filesystem::path& file, const Trouble& trouble) {
  throw_error(ErrorCode::bad_input, file.string(), ": is damaged or no Parquet file (", trouble.data(), ")");
}

}  // namespace

ParquetRows::ParquetRows(std::filesystem::path file)
    : path_(std::move(file)), rows_(nullptr, library(path_).close) {
  Trouble trouble{};
  rows_.reset(library(path_).open(path_.c_str(), trouble.data(), trouble.size()));
  if (!rows_) refuse(path_, trouble);
}

ParquetRows::ParquetRows(ParquetRows&&) noexcept = default;
ParquetRows& ParquetRows::operator=(ParquetRows&&) noexcept = default;
ParquetRows::~ParquetRows() = default;

std::size_t ParquetRows::read(std::span<char> room) {
  Trouble trouble{};
  const long count =
      library(path_).read(rows_.get(), room.data(), room.size(), trouble.data(), trouble.size());
  if (count < 0) refuse(path_, trouble);
  return static_cast<std::size_t>(count);
}

}  // namespace prun
