// Reads documents of text files and of JSON lines, in pieces that can be tokenized apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lines/text_reader.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun {

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

}  // namespace prun
