// Each thread takes the next piece, encodes it, and writes it when the pieces before it are written; so no
// more than a piece a thread is in memory, and nothing needs a queue.
#include "tokenize/tokenize.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/output.hpp"
#include "lines/text_reader.hpp"
#include "prun/error.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- token set
// Writes the index: magic, version, token type, counts; each document's length; where it begins; which
// sequences are documents: all.

namespace fs = std::filesystem;

fs::path with_ending(const fs::path& prefix, const char* ending) {
  fs::path file = prefix;
  file += ending;
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(file, ignored)))
    throw_error(ErrorCode::bad_input, file.string(), " exists; remove it, or write to another place");
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    throw_error(ErrorCode::bad_input, folder.string(), " is not a folder; make it first");
  clear_dead_copies(file);
  return file;
}

// Writes numbers to a file, little-endian, in large pieces.
class NumberWriter {
 public:
  explicit NumberWriter(DurableFile& file) : file_(file) {}

  template <class T>
  void put(T number) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof number);
    std::memcpy(bytes_.data() + at, &number, sizeof number);
    if (bytes_.size() >= piece) flush();
  }
  void flush() {
    file_.write(bytes_);
    bytes_.clear();
  }

 private:
  static constexpr std::size_t piece = 1 << 20;
  DurableFile& file_;
  std::vector<std::byte> bytes_;
};

}  // namespace

TokenSetWriter::TokenSetWriter(const fs::path& prefix, TokenId vocab)
    : prefix_(prefix),
      narrow_(vocab <= 1 << 16),
      bin_(with_ending(prefix, ".bin")),
      idx_(with_ending(prefix, ".idx")) {}

void TokenSetWriter::append(std::span<const TokenId> tokens) {
  const auto width = static_cast<std::size_t>(token_bytes());
  buffer_.resize(tokens.size() * width);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    std::memcpy(buffer_.data() + i * width, &tokens[i], width);  // the low bytes come first
  bin_.write(buffer_);
  tokens_ += static_cast<std::int64_t>(tokens.size());
  length_ += static_cast<std::int64_t>(tokens.size());
  if (length_ > std::numeric_limits<std::int32_t>::max())
    throw_error(ErrorCode::bad_input, prefix_.string(), ": document ", documents(), " has more than ",
                std::numeric_limits<std::int32_t>::max(), " tokens; give it as several");
}

void TokenSetWriter::end_document() {
  lengths_.push_back(static_cast<std::int32_t>(length_));
  length_ = 0;
}

void TokenSetWriter::commit() {
  PRUN_CHECK(length_ == 0, "a document of ", length_, " tokens has no end");
  write_index();
  RemovedAtEnd without_idx([&] {
    bin_.commit();
    return bin_.target();
  });
  try {
    without_idx.leave([&] { idx_.commit(); });
  } catch (...) {
    std::error_code ignored;  // the first trouble is the one to tell
    fs::remove(bin_.target(), ignored);
    throw;
  }
}

void TokenSetWriter::write_index() {
  constexpr std::uint8_t i32 = 4, u16 = 8;  // are Megatron's numbers of types
  idx_.write(std::string_view("MMIDIDX\0\0", 9));
  NumberWriter out(idx_);
  out.put(std::uint64_t{1});
  out.put(narrow_ ? u16 : i32);
  out.put(static_cast<std::uint64_t>(documents()));
  out.put(static_cast<std::uint64_t>(documents() + 1));
  for (const std::int32_t length : lengths_) out.put(length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    out.put(offset);
    offset += std::int64_t{length} * token_bytes();
  }
  for (std::int64_t i = 0; i <= documents(); ++i) out.put(i);
  out.flush();
}

namespace {

// ------------------------------------------------------------------- documents
// Reads documents of text files and of JSON lines, in pieces that can be tokenized apart.

// Is a part of a file: whole lines of JSON, or a piece of the one document that another file is.
struct DocumentPiece {
  std::filesystem::path file;
  bool lines = false;          // says that it is JSON
  std::uint64_t position = 0;  // the number of the first line, from 1, or the byte where it begins
  std::string bytes;
  bool begins = false, ends = false;  // say so of the document, where it is a piece of one
};

class DocumentReader {
 public:
  // Files called *.jsonl, *.ndjson or *.json hold a document a line; any other is a document. Each may be
  // compressed (TextReader). Borrows the tokenizer, which says where a document may be cut.
  DocumentReader(std::vector<std::filesystem::path> files, const Tokenizer& tokenizer,
                 std::size_t piece_bytes = std::size_t{1} << 20);

  // Returns pieces in the order of the files, nothing at the end. Files without a byte are passed over.
  std::optional<DocumentPiece> next();

 private:
  void open(const std::filesystem::path& file);
  bool read_more();
  std::size_t cut() const;
  DocumentPiece take(std::size_t bytes);

  std::vector<std::filesystem::path> files_;
  const Tokenizer& tokenizer_;
  std::size_t piece_bytes_;
  std::size_t file_ = 0;            // the next one
  std::optional<TextReader> text_;  // that of the file under way
  bool lines_ = false, at_end_ = true;
  std::string buffer_;  // holds bytes that were read and not handed out
  std::uint64_t position_ = 0;
};

namespace fs = std::filesystem;

// A piece that cannot be cut must fit into memory.
constexpr std::size_t longest_piece = std::size_t{1} << 30;

bool holds_lines(const fs::path& file) {
  const std::string ending = plain_name(file).extension().string();
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

DocumentReader::DocumentReader(std::vector<fs::path> files, const Tokenizer& tokenizer,
                               std::size_t piece_bytes)
    : files_(std::move(files)), tokenizer_(tokenizer), piece_bytes_(piece_bytes) {
  for (const fs::path& file : files_)
    if (std::error_code ignored; !fs::is_regular_file(file, ignored))
      throw_error(ErrorCode::not_found, file.string(), " is not a file; name files of text or of JSON lines");
}

void DocumentReader::open(const fs::path& file) {
  text_.emplace(file);
  lines_ = holds_lines(file);
  position_ = lines_ ? 1 : 0;
  at_end_ = false;
}

// Reads a piece, or as much as there is already, so that text which cannot be cut is read a few times only.
// Returns false at the file's end.
bool DocumentReader::read_more() {
  const std::size_t had = buffer_.size(), wanted = std::max(had, piece_bytes_);
  buffer_.resize(had + wanted);
  const std::size_t count = text_->read(std::span(buffer_).subspan(had));
  buffer_.resize(had + count);
  return count > 0;
}

// Returns the bytes of the buffer that can be handed out; 0 means that more must be read first. A document is
// never handed out whole before its end is seen.
std::size_t DocumentReader::cut() const {
  if (at_end_) return buffer_.size();
  if (buffer_.size() < piece_bytes_) return 0;
  if (!lines_) return tokenizer_.last_cut(buffer_, buffer_.size());
  const std::size_t line_end = buffer_.rfind('\n');
  return line_end == std::string::npos ? 0 : line_end + 1;
}

std::optional<DocumentPiece> DocumentReader::next() {
  for (;;) {
    if (at_end_ && buffer_.empty()) {
      if (file_ == files_.size()) return {};
      open(files_[file_++]);
    }
    while (cut() == 0 && !at_end_) {
      if (buffer_.size() > longest_piece)
        throw_error(ErrorCode::bad_input, files_[file_ - 1].string(), ": there is no ",
                    lines_ ? "line end" : "place to cut", " in ", longest_piece, " bytes from ",
                    lines_ ? "line " : "byte ", position_, " on; give it as several documents");
      at_end_ = !read_more();
    }
    if (!buffer_.empty()) return take(cut());
  }
}

DocumentPiece DocumentReader::take(std::size_t bytes) {
  DocumentPiece piece{files_[file_ - 1], lines_, position_, buffer_.substr(0, bytes), position_ == 0, false};
  buffer_.erase(0, bytes);
  piece.ends = at_end_ && buffer_.empty();
  position_ +=
      lines_ ? static_cast<std::uint64_t>(std::count(piece.bytes.begin(), piece.bytes.end(), '\n')) : bytes;
  return piece;
}

// ------------------------------------------------------------------- tokenize

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

namespace {

// ------------------------------------------------------------------- tokenize verb
// Implements prun tokenize TOKENIZER FILE... --out PREFIX.

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
