// Implements prun tokenize TOKENIZER FILE... --out PREFIX.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/text.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/output.hpp"
#include "prun/error.hpp"
#include "tokenize/tokenize.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TokenId end_of_text(const Tokenizer& tokenizer, const Arguments& arguments) {
  const auto named = arguments.values.find("--end-of-text");
  const bool is_named = named != arguments.values.end();
  const std::optional<TokenId> id = is_named ? tokenizer.find_added(named->second) : tokenizer.end_of_text();
  if (id) return *id;
  if (is_named)
    throw_error(ErrorCode::bad_input, "the tokenizer has no added token ", in_quotes(named->second));
  throw_error(
      ErrorCode::bad_input,
      "the tokenizer has neither <|endoftext|> nor <|end_of_text|>; name the token that ends a document "
      "with --end-of-text");
}

TokenizeRequest request_of(const Tokenizer& tokenizer, const Arguments& arguments) {
  TokenizeRequest request;
  request.files.assign(arguments.words.begin() + 1, arguments.words.end());
  request.prefix = arguments.path("--out").value();
  if (const auto key = arguments.values.find("--key"); key != arguments.values.end())
    request.key = key->second;
  request.end_of_text = end_of_text(tokenizer, arguments);
  request.replace = arguments.has("--replace");
  request.threads =
      static_cast<int>(arguments.number("--threads", std::max(1u, std::thread::hardware_concurrency())));
  return request;
}

// Prints a line that is written over, on a terminal.
class ProgressLine {
 public:
  void show(std::uint64_t bytes) {
    if (!watched_ || seconds_since(shown_) < 1) return;
    shown_ = Clock::now();
    const auto done = static_cast<double>(bytes);
    print_as_it_is("\r" + size_text(done) + ", " + size_text(done / seconds_since(begin_)) + "/s  ", stderr);
    drawn_ = true;
  }
  ~ProgressLine() {
    if (drawn_) std::fprintf(stderr, "\n");
  }

 private:
  const bool watched_ = ::isatty(STDERR_FILENO) != 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
  bool drawn_ = false;
};

int tokenize_command(const Arguments& arguments) {
  const CleanEnd clean;
  const Tokenizer tokenizer = Tokenizer::load(arguments.words[0]);
  const TokenizeRequest request = request_of(tokenizer, arguments);
  const Clock::time_point begin = Clock::now();
  TokenizeResult result;
  {
    ProgressLine line;
    result = tokenize(tokenizer, request, [&](std::uint64_t bytes) { line.show(bytes); });
  }
  const double seconds = seconds_since(begin);
  std::printf("wrote %s.bin and .idx: %lld documents, %lld tokens of %d bytes; vocabulary %d\n",
              request.prefix.c_str(), static_cast<long long>(result.documents),
              static_cast<long long>(result.tokens), result.token_bytes, tokenizer.size());
  if (result.empty)
    std::printf("left out %llu documents without text\n", static_cast<unsigned long long>(result.empty));
  if (result.replaced)
    std::printf("replaced %llu bytes that are not UTF-8\n", static_cast<unsigned long long>(result.replaced));
  std::printf("%s in %.1f s, %s/s, %d threads\n", size_text(result.bytes).c_str(), seconds,
              size_text(result.bytes / std::max(seconds, 1e-9)).c_str(), request.threads);
  return 0;
}

}  // namespace

std::vector<Command> tokenize_verb() {
  return {
      {"tokenize",
       "TOKENIZER FILE...",
       "text, or the texts of JSON lines (*.jsonl, *.ndjson, *.json), compressed (*.gz, *.zst) or not, or of "
       "the rows of Parquet files (*.parquet), into PREFIX.bin and PREFIX.idx, with a Hugging Face "
       "tokenizer.json",
       {{"--out", "PREFIX", "where to", true},
        {"--key", "NAME", "of JSON lines: whose value is the text; text"},
        {"--end-of-text", "TOKEN", "what ends a document"},
        {"--replace", "", "broken UTF-8 by U+FFFD rather than refuse it"},
        {"--threads", "N", "threads, as many as processors"}},
       tokenize_command}};
}

}  // namespace prun
