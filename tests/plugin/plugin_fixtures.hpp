// What the tests of the plugin ABI share: the built fixtures, folders to copy them into, options to create
// with, and what an Error said.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin_check/conformance.hpp"
#include "prun/error.hpp"
#include "prun/options.hpp"

namespace prun::test {

// The folder that tests/plugin/fixtures/CMakeLists.txt builds into.
inline std::filesystem::path fixtures() {
  if (const char* folder = std::getenv("PRUN_FIXTURES")) return folder;
#ifdef PRUN_FIXTURES_DIR
  return PRUN_FIXTURES_DIR;
#else
  throw_error(ErrorCode::not_found, "set PRUN_FIXTURES to the folder of the built fixtures");
#endif
}

// A folder of its own for one test, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "prun-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw_error(ErrorCode::storage, "cannot make ", pattern);
    path_ = std::filesystem::canonical(pattern);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Copies a fixture, so that owner and permissions are the test's. `to` may be a folder or a new name.
inline std::filesystem::path copy_fixture(const std::string& file, std::filesystem::path to) {
  if (std::filesystem::is_directory(to)) to /= file;
  std::filesystem::create_directories(to.parent_path());
  std::filesystem::copy_file(fixtures() / file, to);
  ::chmod(to.c_str(), 0755);
  return to;
}

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  ::chmod(path.c_str(), 0644);
}

// The message of the Error that `body` throws, or a text that no test looks for.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

inline testing::AssertionResult holds(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

// Returns all checks as `prun plugins check` prints them.
inline std::string report(const std::vector<ContractCheck>& checks) {
  std::string text;
  for (const ContractCheck& check : checks) text += to_text(check) + "\n";
  return text;
}

// A section with integers and texts; every other key is an error.
struct Section {
  std::map<std::string, std::int64_t, std::less<>> integers;
  std::map<std::string, std::string, std::less<>> texts;

  OptionsApi api() {
    OptionsApi result{};
    result.struct_size = sizeof result;
    result.section = this;
    result.integer = [](void* self, Text key, std::int64_t* value) {
      const auto& map = static_cast<Section*>(self)->integers;
      const auto at = map.find(key.view());
      if (at == map.end()) return missing(key);
      *value = at->second;
      return Status{};
    };
    result.text = [](void* self, Text key, Text* value) {
      const auto& map = static_cast<Section*>(self)->texts;
      const auto at = map.find(key.view());
      if (at == map.end()) return missing(key);
      *value = Text(std::string_view(at->second));
      return Status{};
    };
    return result;
  }

 private:
  static Status missing(Text key) {
    return Status::failure(ErrorCode::bad_input, "option '" + std::string(key.view()) + "' has no value");
  }
};

}  // namespace prun::test
