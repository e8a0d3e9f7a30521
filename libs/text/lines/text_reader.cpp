#include "lines/text_reader.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "parquet/rows.h"
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- parquet rows

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

namespace {

// ------------------------------------------------------------------- text reader

constexpr std::size_t packed_bytes = std::size_t{1} << 18;

using Unpacker = std::unique_ptr<Unpacking> (*)(std::string_view);

// Null where the name says that the file is its text.
Unpacker unpacker_of(const std::filesystem::path& file) {
  if (file.extension() == ".gz") return unpack_gzip;
  if (file.extension() == ".zst") return unpack_zstd;
  return nullptr;
}

std::unique_ptr<Unpacking> start_unpacking(const std::filesystem::path& file) {
  const Unpacker unpack = unpacker_of(file);
  return unpack ? unpack(file.native()) : nullptr;
}

bool has_rows(const std::filesystem::path& file) { return file.extension() == ".parquet"; }

}  // namespace

std::filesystem::path plain_name(const std::filesystem::path& file) {
  if (has_rows(file)) return std::filesystem::path(file).replace_extension(".jsonl");
  return unpacker_of(file) ? file.parent_path() / file.stem() : file;
}

std::vector<std::filesystem::path> json_line_files(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return {path};
  std::vector<fs::path> files;
  if (fs::is_directory(path, ignored))
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
      if (const std::string end = plain_name(entry.path()).extension().string();
          end == ".jsonl" || end == ".ndjson")
        files.push_back(entry.path());
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return files;
}

TextReader::TextReader(std::filesystem::path file)
    : path_(std::move(file)),
      file_(open_or_throw(path_, O_RDONLY | O_CLOEXEC)),
      unpacking_(start_unpacking(path_)),
      buffer_(unpacking_ ? packed_bytes : 0) {
  if (has_rows(path_)) rows_.emplace(path_);
}

std::size_t TextReader::read_file(std::span<char> room) {
  ssize_t count = -1;
  do count = ::read(file_.get(), room.data(), room.size());
  while (count < 0 && errno == EINTR);
  if (count < 0) throw_storage_error("read", path_, errno);
  return static_cast<std::size_t>(count);
}

void TextReader::refill() {
  packed_ = std::span(buffer_).first(read_file(buffer_));
  taken_ += packed_.size();
  at_end_ = packed_.empty();
}

void TextReader::refuse(std::string_view what) const {
  throw_error(ErrorCode::bad_input, path_.string(), ": ", what, " at byte ", taken_ - packed_.size(),
              " of the compressed file; copy it here again, or make it again from its text");
}

// Unpacking may hold back bytes that did not fit into `room`, so it is asked once more after the file's last
// byte.
std::size_t TextReader::read(std::span<char> room) {
  if (rows_) return rows_->read(room);
  if (!unpacking_) return read_file(room);
  std::span<char> left = room;
  while (left.size() == room.size()) {
    if (packed_.empty() && !at_end_) refill();
    if (packed_.empty() && at_end_ && unpacking_->whole()) return 0;
    if (const std::string trouble = unpacking_->step(packed_, left); !trouble.empty()) refuse(trouble);
    if (packed_.empty() && at_end_ && left.size() == room.size() && !unpacking_->whole())
      refuse("is cut short");
  }
  return room.size() - left.size();
}

bool LineReader::next(std::string& line) {
  line.clear();
  for (bool begun = false;; begun = true) {
    if (left_.empty()) left_ = {piece_.data(), text_.read(piece_)};
    if (left_.empty()) return begun;
    const std::size_t end = std::min(left_.find('\n'), left_.size());
    const bool ends = end < left_.size();
    line += left_.substr(0, end);
    left_.remove_prefix(end + (ends ? 1 : 0));
    if (ends) return true;
  }
}

}  // namespace prun
