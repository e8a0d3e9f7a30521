// Cuts the corpus into samples.
#include "text_data.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <system_error>

#include "prun/error.hpp"

namespace prun::text {

// ------------------------------------------------------------------- corpus
// Walks a folder in a fixed order and reads what it finds.

namespace fs = std::filesystem;

namespace {

constexpr std::size_t looked_at = 4096;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::ifstream open_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw_error(ErrorCode::storage, path.string(),
                ": cannot be opened; make it readable or exclude it by name");
  return file;
}

bool looks_like_text(const fs::path& path) {
  std::ifstream file = open_file(path);
  std::array<char, looked_at> start;
  file.read(start.data(), start.size());
  if (file.bad()) throw_error(ErrorCode::storage, path.string(), ": cannot be read; exclude it by name");
  const auto end = start.begin() + file.gcount();
  return std::find(start.begin(), end, '\0') == end;
}

bool has_extension(const CorpusRules& rules, const fs::path& path) {
  const std::string extension = path.extension().string();
  return std::any_of(rules.extensions.begin(), rules.extensions.end(), [&](const std::string& wanted) {
    return !extension.empty() && (wanted == extension || "." + wanted == extension);
  });
}

bool wanted(const CorpusRules& rules, const fs::path& path) {
  return rules.extensions.empty() ? looks_like_text(path) : has_extension(rules, path);
}

// Follows links; a link that leads nowhere is of type not_found or none.
fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error && status.type() == fs::file_type::none && error != std::errc::too_many_symbolic_link_levels)
    throw fs::filesystem_error("cannot look at a file", path, error);
  return status.type();
}

// Returns the entries that count below the folder, in the order the file system gives them.
std::vector<fs::path> walk(const CorpusRules& rules) {
  std::vector<fs::path> files;
  fs::recursive_directory_iterator entry(rules.path), end;
  for (; entry != end; ++entry) {
    const std::string name = entry->path().filename().string();
    const fs::file_type type = type_of(entry->path());
    const bool folder = type == fs::file_type::directory;
    const bool left_out = contains(rules.exclude, name) || (folder && name.starts_with('.'));
    if (folder && left_out) entry.disable_recursion_pending();
    if (left_out || type != fs::file_type::regular) continue;
    if (wanted(rules, entry->path())) files.push_back(entry->path());
  }
  return files;
}

void append(std::string& corpus, std::string_view piece, const fs::path& path, const CorpusRules& rules) {
  if (piece.size() > rules.max_bytes || corpus.size() > rules.max_bytes - piece.size())
    throw_error(ErrorCode::bad_input, rules.path.string(), ": holds more than max_bytes = ", rules.max_bytes,
                " bytes of text (reached at ", path.string(), "); raise max_bytes or exclude some of it");
  corpus += piece;
}

void append_file(std::string& corpus, const fs::path& path, const CorpusRules& rules) {
  std::ifstream file = open_file(path);
  std::array<char, 65536> piece;
  while (file.read(piece.data(), piece.size()), file.gcount() > 0)
    append(corpus, {piece.data(), static_cast<std::size_t>(file.gcount())}, path, rules);
  if (file.bad())
    throw_error(ErrorCode::storage, path.string(), ": cannot be read to its end; check the disk");
}

// Returns the bytes that the files hold now, with a line's end between each two; growing by turns would need
// twice as much for a while.
std::size_t room_for(const std::vector<fs::path>& files, const CorpusRules& rules) {
  std::uintmax_t bytes = files.size();
  for (const fs::path& path : files) {
    std::error_code error;
    if (const std::uintmax_t size = fs::file_size(path, error); !error) bytes += size;
  }
  return static_cast<std::size_t>(std::min<std::uintmax_t>(bytes, rules.max_bytes));
}

}  // namespace

std::vector<fs::path> find_files(const CorpusRules& rules) {
  std::error_code error;
  const fs::file_status status = fs::status(rules.path, error);
  if (!fs::exists(status))
    throw_error(ErrorCode::not_found, "text path '", rules.path.string(),
                "' does not exist or cannot be reached; give a text file or a folder of them");
  if (fs::is_regular_file(status)) return {rules.path};
  if (!fs::is_directory(status))
    throw_error(ErrorCode::bad_input, rules.path.string(),
                ": is neither a file nor a folder; give one of these");
  std::vector<fs::path> files;
  try {
    files = walk(rules);
  } catch (const fs::filesystem_error& failure) {
    throw_error(ErrorCode::storage, rules.path.string(), ": the folder cannot be searched (", failure.what(),
                "); make it readable or exclude the part that is not");
  }
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  if (files.empty())
    throw_error(ErrorCode::bad_input, rules.path.string(),
                ": holds no text file; give another path, or change extensions and exclude");
  return files;
}

std::string load_corpus(const CorpusRules& rules) {
  std::string corpus;
  bool first = true;
  const std::vector<fs::path> files = find_files(rules);
  corpus.reserve(room_for(files, rules));
  for (const fs::path& path : files) {
    if (!first) append(corpus, "\n", path, rules);
    first = false;
    append_file(corpus, path, rules);
  }
  return corpus;
}

// ------------------------------------------------------------------- text data

TextData::TextData(const Options& options)
    : rules_{options.text("path"), options.texts("extensions"), options.texts("exclude"),
             static_cast<std::uint64_t>(options.integer("max_bytes"))} {}

DataInfo TextData::open(std::int64_t seq) {
  PRUN_CHECK(seq > 0, "text data opened for sequences of ", seq, " tokens");
  corpus_ = load_corpus(rules_);
  seq_ = seq;
  const auto bytes = static_cast<std::int64_t>(corpus_.size());
  samples_ = bytes > 0 ? (bytes - 1) / seq : 0;
  if (samples_ == 0)
    throw_error(ErrorCode::bad_input, rules_.path.string(), ": ", bytes,
                " bytes are too few for one sample of ", seq,
                " tokens and the byte after them; give more text or a shorter seq");
  return {samples_, bytes, 256};
}

void TextData::read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) {
  PRUN_CHECK(index >= 0 && index < samples_, "text sample ", index, " of ", samples_);
  const char* bytes = corpus_.data() + index * seq_;
  for (std::int64_t i = 0; i < seq_; ++i) {
    tokens[i] = static_cast<unsigned char>(bytes[i]);
    targets[i] = static_cast<unsigned char>(bytes[i + 1]);
  }
}

}  // namespace prun::text
