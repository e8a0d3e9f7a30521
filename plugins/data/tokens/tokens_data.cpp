// Opens a set without looking at its tokens, then reads windows of it.
#include "tokens_data.hpp"

#include <algorithm>
#include <limits>

#include "llmc_file.hpp"

namespace prun::tokens {

namespace {

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
