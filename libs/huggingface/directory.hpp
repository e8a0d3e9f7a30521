// Reads the weights of a directory that others wrote: model.safetensors, or the files that
// model.safetensors.index.json names.
#pragma once

#include <filesystem>
#include <list>
#include <map>
#include <string>
#include <string_view>

#include "base/safetensors.hpp"

namespace prun {

inline constexpr const char* weights_name = "model.safetensors";
inline constexpr const char* weights_index_name = "model.safetensors.index.json";

class ForeignDirectory {
 public:
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  // Opens all files and checks their headers; throws not_found or bad_input.
  explicit ForeignDirectory(std::filesystem::path folder);
  // Opens one file in it.
  ForeignDirectory(std::filesystem::path folder, std::string_view file);

  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  // Returns a tensor, or nullptr if there is none.
  const Tensor* find(std::string_view name) const;
  // Digests all names, types, shapes and places, so that two directories can be distinguished without their
  // data.
  std::string digest() const;
  // Digests all bytes of its files.
  std::string content(std::size_t threads) const;

 private:
  void read_index(const std::filesystem::path& index);

  std::filesystem::path folder_;
  std::list<SafetensorsFile> files_;  // tensors point into it
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace prun
