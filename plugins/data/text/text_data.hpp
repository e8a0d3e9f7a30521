// Takes bytes as tokens: sample i reads the corpus from byte i * seq, and its targets are one byte further
// on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "prun/data.hpp"

namespace prun::text {

// ------------------------------------------------------------------- corpus
// Finds which files make up a text corpus, and joins their bytes into one.

struct CorpusRules {
  std::filesystem::path path;           // a file, or a folder that is searched to any depth
  std::vector<std::string> extensions;  // "txt" or ".txt"; empty: every file without NUL in its first 4 KiB
  std::vector<std::string> exclude;     // names files and folders that are left out
  std::uint64_t max_bytes = 256u << 20;
};

// Returns the files that the rules name. A file named directly is taken whatever it holds; extensions and
// exclude only filter what a folder holds. The order is by path below the folder, compared byte by byte, so
// that it depends on neither locale nor file system. Hidden folders and symbolic links to folders are left
// out; links to files are followed, links that lead nowhere are passed over.
std::vector<std::filesystem::path> find_files(const CorpusRules& rules);

// Returns the bytes of all files; one newline byte stands between two files, whether or not the first ends
// with one. Throws bad_input when the result would exceed max_bytes.
std::string load_corpus(const CorpusRules& rules);

// ------------------------------------------------------------------- text data

class TextData final : public Data {
 public:
  explicit TextData(const Options& options);
  DataInfo open(std::int64_t seq) override;
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override;

 private:
  CorpusRules rules_;
  std::string corpus_;
  std::int64_t seq_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace prun::text
