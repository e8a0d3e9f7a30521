#include "tokenize/documents.hpp"

#include <algorithm>

#include "prun/error.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// A piece that cannot be cut must fit into memory.
constexpr std::size_t longest_piece = std::size_t{1} << 30;

bool holds_lines(const fs::path& file) {
  const std::string ending = plain_name(file).extension().string();
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

}  // namespace

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

}  // namespace prun
