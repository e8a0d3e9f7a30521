// Looks at names only; the parsers look into the files.
#include "token_paths.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "prun/error.hpp"

namespace prun::tokens {

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

}  // namespace prun::tokens
