#include "chat_data.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "base/text.hpp"
#include "lines/text_reader.hpp"
#include "prun/plugin.hpp"

namespace prun::chat {
namespace {

// ------------------------------------------------------------------- packing

constexpr std::size_t most_open = 64;

// Holds a sample that may take more conversations.
struct Open {
  std::size_t sample;
  std::int64_t left;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> pack(std::span<const std::int64_t> lengths, std::int64_t room) {
  std::vector<std::vector<std::uint32_t>> samples;
  std::vector<Open> open;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t behind_others = lengths[i] + 1;
    auto best = open.end();
    for (auto one = open.begin(); one != open.end(); ++one)
      if (one->left >= behind_others && (best == open.end() || one->left < best->left)) best = one;
    if (best != open.end()) {
      samples[best->sample].push_back(static_cast<std::uint32_t>(i));
      best->left -= behind_others;
      continue;
    }
    if (open.size() == most_open)
      open.erase(std::min_element(open.begin(), open.end(),
                                  [](const Open& a, const Open& b) { return a.left < b.left; }));
    open.push_back({samples.size(), room - lengths[i]});
    samples.push_back({static_cast<std::uint32_t>(i)});
  }
  return samples;
}

namespace {

// ------------------------------------------------------------------- chat data

namespace fs = std::filesystem;

// A token is kept with its role, which begins at this bit.
constexpr int role_shift = 28;
constexpr std::int32_t most_tokens = 1 << role_shift;
std::int32_t packed(std::int32_t token, Speaker role, bool learned) {
  const std::int32_t both = token | static_cast<std::int32_t>(role) << role_shift;
  return learned ? both : ~both;
}
bool is_learned(std::int32_t kept) { return kept >= 0; }
std::int32_t token_in(std::int32_t kept) { return (kept < 0 ? ~kept : kept) & (most_tokens - 1); }
std::uint8_t role_in(std::int32_t kept) {
  return static_cast<std::uint8_t>((kept < 0 ? ~kept : kept) >> role_shift);
}

}  // namespace

ChatData::ChatData(const Options& options)
    : path_(options.text("path")),
      tokenizer_(options.text("tokenizer")),
      template_(options.text("template")),
      date_(options.text("date")),
      between_(static_cast<std::int32_t>(options.integer("between"))),
      learned_(learned_named(options.text("learn")).value()),
      reasoning_(options.text("reasoning") == "learn"),
      pack_(options.flag("pack")),
      too_long_(options.text("too_long")),
      local_rank_(options.local_rank()),
      local_ranks_(std::max(1, options.local_ranks())) {}

std::vector<ChatData::Line> ChatData::read_lines() const {
  const std::vector<fs::path> files = json_line_files(path_);
  if (files.empty())
    throw_error(ErrorCode::not_found, "chat path '", path_.string(),
                "' is neither a file of conversations, one a line, nor a folder with such files (*.jsonl, "
                "*.ndjson, and with .gz or .zst behind it)");
  std::vector<Line> lines;
  for (const fs::path& path : files) {
    LineReader file(path);
    std::string text;
    for (std::int64_t number = 1; file.next(text); ++number)
      if (!trim(text).empty()) lines.push_back({text, path.string() + ":" + std::to_string(number)});
  }
  if (lines.empty()) throw_error(ErrorCode::bad_input, path_.string(), ": holds no conversation");
  return lines;
}

ChatData::Encoded ChatData::encode(const Line& line, ChatEncoder& encoder) const {
  EncodedChat encoded;
  try {
    encoded = encoder.encode(read_conversation(parse_json(line.text, line.place), line.place));
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.starts_with(line.place)) throw;
    throw_error(error.code(), line.place, ": ", what);
  }
  Encoded tokens;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i) {
    if (encoded.tokens[i] == between_)
      throw_error(ErrorCode::bad_input, line.place, ": holds the token ", between_,
                  ", which stands between conversations; give data.between another that none of them holds");
    tokens.push_back(packed(encoded.tokens[i], encoded.roles[i], encoded.learned[i]));
  }
  return tokens;
}

// Encodes on the cores of this rank. The failure that comes first in the data counts, as with one thread.
std::vector<ChatData::Encoded> ChatData::encode_all(const std::vector<Line>& lines) const {
  const ChatFormat format(tokenizer_, template_, date_);
  PRUN_CHECK(format.tokenizer().size() <= most_tokens, format.tokenizer().size(), " tokens");
  if (between_ >= format.tokenizer().size())
    throw_error(ErrorCode::bad_input, "data.between = ", between_,
                " is no token of the tokenizer, which has ", format.tokenizer().size());
  std::vector<Encoded> all(lines.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed_at = lines.size();
  std::exception_ptr failure;
  const auto work = [&] {
    ChatEncoder encoder(format, learned_, reasoning_);
    for (std::size_t i = next++; i < lines.size(); i = next++) try {
        all[i] = encode(lines[i], encoder);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (i < failed_at) failure = std::current_exception();
        failed_at = std::min(failed_at, i);
        next = lines.size();
      }
  };
  {
    const auto cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (std::int32_t i = 1; i < cores / local_ranks_; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return all;
}

// Says whether a conversation stays. Its first token is no target, so one that is learned must come after it.
bool ChatData::fit(Encoded& tokens, const std::string& place) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  if (size > seq_ && too_long_ == "refuse")
    throw_error(ErrorCode::bad_input, place, ": has ", size, " tokens, more than model.seq = ", seq_,
                "; raise that, or let data.too_long cut or drop it");
  if (size > seq_ && too_long_ == "drop") {
    ++counts_.dropped;
    return false;
  }
  if (size > seq_) {
    ++counts_.cut;
    counts_.cut_tokens += size - seq_;
    tokens.resize(static_cast<std::size_t>(seq_));
  }
  const auto learned = tokens.empty() ? 0 : std::count_if(tokens.begin() + 1, tokens.end(), is_learned);
  if (learned == 0) ++counts_.unlearned;
  counts_.learned += learned;
  return learned > 0;
}

void ChatData::keep(std::vector<Encoded> all, const std::vector<Line>& lines) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!fit(all[i], lines[i].place)) continue;
    begins_.push_back(tokens_.size());
    tokens_.insert(tokens_.end(), all[i].begin(), all[i].end());
    lengths.push_back(static_cast<std::int64_t>(all[i].size()));
    Encoded().swap(all[i]);
  }
  begins_.push_back(tokens_.size());
  counts_.tokens = static_cast<std::int64_t>(tokens_.size());
  if (pack_)
    samples_ = pack(lengths, seq_);
  else
    for (std::uint32_t i = 0; i < lengths.size(); ++i) samples_.push_back({i});
  if (samples_.empty())
    throw_error(ErrorCode::bad_input, path_.string(), ": of ", lines.size(),
                " conversations none has a token to learn within ", seq_,
                " tokens; raise model.seq, or look at one with prun data show");
}

void ChatData::say() const {
  if (local_rank_ != 0) return;
  log_line(counts_.conversations, " conversations of ", path_.string(), ": ", counts_.tokens, " tokens, ",
           counts_.learned, " of them learned, in ", samples_.size(), " samples of ", seq_);
  if (counts_.cut)
    log_line(counts_.cut, " conversations were longer than model.seq = ", seq_, " and are cut; ",
             counts_.cut_tokens, " tokens are left out");
  if (counts_.dropped)
    log_line(counts_.dropped, " conversations were longer than model.seq = ", seq_, " and are left out");
  if (counts_.unlearned)
    log_line(counts_.unlearned, " conversations have no token to learn and are left out");
}

DataInfo ChatData::open(std::int64_t seq) {
  PRUN_CHECK(seq > 0, "conversations opened for sequences of ", seq, " tokens");
  seq_ = seq;
  const std::vector<Line> lines = read_lines();
  counts_.conversations = static_cast<std::int64_t>(lines.size());
  keep(encode_all(lines), lines);
  say();
  std::int32_t largest = between_;
  for (const std::int32_t kept : tokens_) largest = std::max(largest, token_in(kept));
  return {static_cast<std::int64_t>(samples_.size()), counts_.tokens, std::int64_t{largest} + 1};
}

// Calls body(place in the sample, token as it is kept, whether it is the first of its conversation).
template <class Body>
void ChatData::each_token(std::int64_t index, Body&& body) const {
  PRUN_CHECK(index >= 0 && index < static_cast<std::int64_t>(samples_.size()), "sample ", index, " of ",
             samples_.size());
  std::int64_t at = 0;
  for (const std::uint32_t conversation : samples_[static_cast<std::size_t>(index)]) {
    if (at > 0) ++at;  // skips the end of the conversation before
    for (std::size_t i = begins_[conversation]; i < begins_[conversation + 1]; ++i, ++at)
      body(at, tokens_[i], i == begins_[conversation]);
  }
}

// A token is learned at the place in front of it in the same conversation. The places left over are ends of
// conversations, which learn nothing.
void ChatData::read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) {
  std::fill_n(tokens, seq_, between_);
  std::fill_n(targets, seq_, -1);
  each_token(index, [&](std::int64_t at, std::int32_t kept, bool first) {
    tokens[at] = token_in(kept);
    if (!first && is_learned(kept)) targets[at - 1] = token_in(kept);
  });
}

void ChatData::roles(std::int64_t index, std::uint8_t* roles) {
  std::fill_n(roles, seq_, static_cast<std::uint8_t>(Speaker::other));
  each_token(index, [&](std::int64_t at, std::int32_t kept, bool first) {
    if (!first) roles[at - 1] = role_in(kept);
  });
}

}  // namespace prun::chat
