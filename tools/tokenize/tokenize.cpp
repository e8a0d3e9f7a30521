// Each thread takes the next piece, encodes it, and writes it when the pieces before it are written; so no
// more than a piece a thread is in memory, and nothing needs a queue.
#include "tokenize/tokenize.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "prun/error.hpp"
#include "tokenize/documents.hpp"
#include "tokenize/token_set.hpp"
#include "tokenizer/encoder.hpp"

namespace prun {
namespace {

// Holds the tokens of a piece, and where in them documents end.
struct EncodedPiece {
  std::vector<TokenId> tokens;
  std::vector<std::size_t> ends;
  std::uint64_t bytes = 0, empty = 0, replaced = 0;
};

// Belongs to one thread.
class PieceEncoder {
 public:
  PieceEncoder(const Tokenizer& tokenizer, const TokenizeRequest& request)
      : tokenizer_(tokenizer), request_(request), encoder_(tokenizer) {}

  EncodedPiece encode(const DocumentPiece& piece) {
    EncodedPiece out;
    out.bytes = piece.bytes.size();
    if (piece.lines)
      encode_lines(piece, out);
    else
      encode_text(piece, out);
    return out;
  }

 private:
  void encode_lines(const DocumentPiece& piece, EncodedPiece& out) {
    std::uint64_t number = piece.position;
    for (std::string_view rest = piece.bytes; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (!trim(line).empty())
        encode_line(readable(line, out), piece.file.string() + ":" + std::to_string(number), out);
    }
  }

  void encode_line(std::string_view line, const std::string& place, EncodedPiece& out) {
    const JsonValue document = parse_json(line, place);
    const JsonValue* const text = document.is_object() ? document.find(request_.key) : nullptr;
    if (!text || !text->is_string())
      throw_error(ErrorCode::bad_input, place, ": has no text under ", in_quotes(request_.key),
                  "; name the key of the text with --key");
    if (text->as_string().empty()) {
      ++out.empty;
      return;
    }
    begin(out);
    encoder_.append(text->as_string(), out.tokens);
    end(out);
  }

  void encode_text(const DocumentPiece& piece, EncodedPiece& out) {
    const std::string_view text = readable(piece.bytes, out);
    if (const std::size_t broken = valid_utf8_start(text); broken != text.size())
      throw_error(ErrorCode::bad_input, piece.file.string(), ": is not UTF-8 at byte ",
                  piece.position + broken, "; mend it, or have such bytes replaced with --replace");
    if (piece.begins) begin(out);
    encoder_.append(text, out.tokens);
    if (piece.ends) end(out);
  }

  void begin(EncodedPiece& out) const {
    out.tokens.insert(out.tokens.end(), tokenizer_.prefix().begin(), tokenizer_.prefix().end());
  }
  void end(EncodedPiece& out) const {
    if (out.tokens.empty() || out.tokens.back() != request_.end_of_text)
      out.tokens.push_back(request_.end_of_text);
    out.ends.push_back(out.tokens.size());
  }

  // Returns the same text, or one with U+FFFD in the place of each broken byte.
  std::string_view readable(std::string_view text, EncodedPiece& out) {
    if (!request_.replace || valid_utf8(text)) return text;
    replaced_.clear();
    while (!text.empty()) {
      const CodePoint point = decode_utf8(text);
      replaced_ += point.valid ? text.substr(0, point.bytes) : "\xEF\xBF\xBD";
      if (!point.valid) ++out.replaced;
      text.remove_prefix(point.bytes);
    }
    return replaced_;
  }

  const Tokenizer& tokenizer_;
  const TokenizeRequest& request_;
  Encoder encoder_;
  std::string replaced_;
};

class Job {
 public:
  Job(const Tokenizer& tokenizer, const TokenizeRequest& request,
      const std::function<void(std::uint64_t)>& progress)
      : tokenizer_(tokenizer),
        request_(request),
        progress_(progress),
        documents_(request.files, tokenizer, request.piece_bytes),
        set_(request.prefix, tokenizer.size()) {}

  TokenizeResult run() {
    {
      std::vector<std::jthread> threads;
      try {
        for (int i = 0; i < request_.threads; ++i)
          threads.push_back(start_thread<std::jthread>("a tokenizer", [this] { work(); }));
      } catch (...) {
        fail(0);
      }
    }
    if (failure_) std::rethrow_exception(failure_);
    set_.commit();
    result_.documents = set_.documents();
    result_.tokens = set_.tokens();
    result_.token_bytes = set_.token_bytes();
    return result_;
  }

 private:
  void work() {
    std::uint64_t number = 0;
    try {
      PieceEncoder encoder(tokenizer_, request_);
      while (const std::optional<DocumentPiece> piece = take(number))
        if (!write(number, encoder.encode(*piece))) return;
    } catch (...) {
      fail(number);
    }
  }

  std::optional<DocumentPiece> take(std::uint64_t& number) {
    const std::scoped_lock lock(reading_);
    number = taken_;
    std::optional<DocumentPiece> piece = documents_.next();
    if (piece) ++taken_;
    return piece;
  }

  // Writes in its turn; returns false where that does not come, since something has failed.
  bool write(std::uint64_t number, const EncodedPiece& piece) {
    std::unique_lock lock(writing_);
    turn_.wait(lock, [&] { return written_ >= number || failure_; });
    if (failure_) return false;
    std::span<const TokenId> tokens = piece.tokens;
    std::size_t begin = 0;
    for (const std::size_t end : piece.ends) {
      set_.append(tokens.subspan(begin, end - begin));
      set_.end_document();
      begin = end;
    }
    set_.append(tokens.subspan(begin));
    result_.bytes += piece.bytes;
    result_.empty += piece.empty;
    result_.replaced += piece.replaced;
    ++written_;
    if (progress_) progress_(result_.bytes);
    turn_.notify_all();
    return true;
  }

  // This waits for its turn too, so that the first failure counts, as it would with one thread.
  void fail(std::uint64_t number) {
    std::unique_lock lock(writing_);
    turn_.wait(lock, [&] { return written_ >= number || failure_; });
    if (!failure_) failure_ = std::current_exception();
    turn_.notify_all();
  }

  const Tokenizer& tokenizer_;
  const TokenizeRequest& request_;
  const std::function<void(std::uint64_t)>& progress_;
  std::mutex reading_;
  DocumentReader documents_;
  std::uint64_t taken_ = 0;
  std::mutex writing_;
  std::condition_variable turn_;
  TokenSetWriter set_;
  std::uint64_t written_ = 0;
  TokenizeResult result_;
  std::exception_ptr failure_;
};

}  // namespace

TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeRequest& request,
                        const std::function<void(std::uint64_t)>& progress) {
  return Job(tokenizer, request, progress).run();
}

}  // namespace prun
