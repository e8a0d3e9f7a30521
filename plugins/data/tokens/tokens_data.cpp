// Opens a set without looking at its tokens, then reads windows of it.
#include "tokens_data.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "megatron_index.hpp"
#include "prun/error.hpp"

namespace prun::tokens {

// ------------------------------------------------------------------- token paths
// Looks at names only; the parsers look into the files.

namespace fs = std::filesystem;

namespace {

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string stem(const std::string& path) { return path.substr(0, path.size() - 4); }
bool is_idx(const std::string& path) { return path.ends_with(".idx"); }
bool is_bin(const std::string& path) { return path.ends_with(".bin"); }

TokenFiles megatron_pair(const std::string& prefix) {
  TokenFiles pair{Format::megatron, {prefix + ".idx", prefix + ".bin"}};
  for (const std::string& file : pair.files)
    if (!exists(file))
      throw_error(ErrorCode::not_found, file,
                  " does not exist; a Megatron set is a .idx and a .bin of the same name");
  return pair;
}

// `names` are all that the folder or pattern gave; `source` is that folder or pattern, for messages.
TokenFiles shards(const std::string& source, std::vector<std::string> names, Format format) {
  const auto idx = std::find_if(names.begin(), names.end(), is_idx);
  if (format == Format::automatic && idx != names.end())
    throw_error(ErrorCode::bad_input, source, " holds Megatron sets such as ", *idx,
                "; name one of them, or set format = \"llmc\" to read the .bin files as llm.c shards");
  std::erase_if(names, [](const std::string& name) { return !is_bin(name) || is_folder(name); });
  if (names.empty())
    throw_error(ErrorCode::not_found, source,
                " gives no .bin file; name a folder or pattern of llm.c shards");
  std::sort(names.begin(), names.end());
  return {Format::llmc, std::move(names)};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().string());
  if (error)
    throw_error(ErrorCode::storage, folder, ": the folder cannot be read (", error.message(),
                "); check its permissions");
  return names;
}

std::vector<std::string> names_like(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> names(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result != 0 && result != GLOB_NOMATCH)
    throw_error(ErrorCode::storage, pattern, ": the folders cannot be searched; check their permissions");
  return names;
}

TokenFiles find_megatron(const std::string& path) {
  return megatron_pair(is_idx(path) || is_bin(path) ? stem(path) : path);
}

TokenFiles find_llmc(const std::string& path, Format format) {
  if (is_folder(path)) return shards(path, names_in(path), format);
  if (exists(path)) return {Format::llmc, {path}};
  if (path.find_first_of("*?[") != std::string::npos) return shards(path, names_like(path), format);
  throw_error(
      ErrorCode::not_found, "tokens path '", path,
      "' does not exist, nor does it with .idx; give a .bin, a .idx, a Megatron prefix, or a folder or "
      "pattern of llm.c shards");
}

bool names_megatron_set(const std::string& path) {
  if (is_idx(path)) return true;
  const bool prefix_of_index = exists(path + ".idx");
  if (prefix_of_index && is_folder(path))
    throw_error(ErrorCode::bad_input, path, " is a folder and also the prefix of a Megatron set; name ", path,
                ".idx, or set format = \"llmc\" for the folder");
  return prefix_of_index || (is_bin(path) && exists(stem(path) + ".idx"));
}

}  // namespace

TokenFiles find_token_files(const std::string& path, Format format) {
  if (format == Format::automatic && names_megatron_set(path)) format = Format::megatron;
  return format == Format::megatron ? find_megatron(path) : find_llmc(path, format);
}

namespace {

// ------------------------------------------------------------------- tokens data

Format format_of(const std::string& word) {
  if (word == "megatron") return Format::megatron;
  if (word == "llmc") return Format::llmc;
  PRUN_CHECK(word == "auto", "format '", word, "'");
  return Format::automatic;
}

std::uint64_t scan_limit_of(const std::string& word) {
  PRUN_CHECK(word == "auto" || word == "full", "index '", word, "'");
  return word == "full" ? std::numeric_limits<std::uint64_t>::max() : MegatronIndex::default_scan_limit;
}

}  // namespace

TokensData::TokensData(const Options& options)
    : path_(options.text("path")),
      format_(format_of(options.text("format"))),
      scan_limit_(scan_limit_of(options.text("index"))) {}

DataInfo TokensData::open(std::int64_t seq) {
  PRUN_CHECK(seq > 0, "token data opened for sequences of ", seq, " tokens");
  const TokenFiles set = find_token_files(path_, format_);
  const Reading reading(files_);
  if (set.format == Format::megatron)
    open_megatron(set);
  else
    open_llmc(set);
  for (const MappedFile& file : files_) file.expect_whole();
  seq_ = seq;
  const auto tokens = static_cast<std::int64_t>(stream_->tokens());
  samples_ = (tokens - 1) / seq;
  if (samples_ == 0)
    throw_error(ErrorCode::bad_input, path_, ": ", tokens, " tokens are too few for one sample of ", seq,
                " tokens and the one after them; give more data or a shorter seq");
  return {samples_, tokens, 0};
}

void TokensData::open_megatron(const TokenFiles& set) {
  for (const std::string& file : set.files) files_.emplace_back(file);
  const MappedFile& idx = files_[0];
  const MappedFile& bin = files_[1];
  if (parse_megatron_header(idx.path(), idx.bytes()).sequences <= scan_limit_) idx.expect_scan();
  index_.emplace(idx.path(), idx.bytes(), bin.bytes().size(), scan_limit_);
  stream_.emplace(index_->type());
  for (const Extent& extent : index_->extents())
    stream_->append(bin.path(), bin.bytes(), extent.offset, extent.tokens);
}

void TokensData::open_llmc(const TokenFiles& set) {
  std::optional<TokenType> type;
  for (const std::string& name : set.files) {
    const MappedFile& file = files_.emplace_back(name);
    const LlmcHeader header = parse_llmc_header(file.path(), file.bytes());
    if (!type) stream_.emplace(*(type = header.type));
    if (header.type != *type)
      throw_error(ErrorCode::bad_input, name, ": has tokens of ", size_of(header.type),
                  " bytes, the shards before it ", size_of(*type), "; train on shards of one tokenizer only");
    stream_->append(file.path(), file.bytes(), llmc_header_bytes, header.tokens);
  }
}

void TokensData::read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) {
  PRUN_CHECK(index >= 0 && index < samples_, "token sample ", index, " of ", samples_);
  const auto first = static_cast<std::uint64_t>(index * seq_);
  const auto count = static_cast<std::uint64_t>(seq_);
  const Reading reading(files_);
  if (index_) index_->check_window(first, count + 1);
  stream_->read(first, count, tokens);
  std::copy(tokens + 1, tokens + seq_, targets);
  stream_->read(first + count, 1, targets + seq_ - 1);
  expect_whole(first, first + count);
}

void TokensData::expect_whole(std::uint64_t first, std::uint64_t last) const {
  if (index_)  // these are .idx and .bin
    for (const MappedFile& file : files_) file.expect_whole();
  else  // each file is a shard
    for (std::size_t shard = stream_->file_of(first); shard <= stream_->file_of(last); ++shard)
      files_[shard].expect_whole();
}

}  // namespace prun::tokens
