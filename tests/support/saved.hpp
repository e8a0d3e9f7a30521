// Reads a checkpoint, whatever the layout that saved it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_files.hpp"

namespace prun::test {

using Tensors = std::map<std::string, std::vector<std::byte>>;

// Returns whole tensors; every checksum is compared.
inline Tensors saved_in(const std::filesystem::path& checkpoint) {
  const CheckpointFiles files(checkpoint);
  Tensors tensors;
  for (const auto& [name, tensor] : files.tensors()) {
    const TensorSlice all{name, tensor.type, whole_slice(tensor.shape)};
    std::vector<std::byte>& bytes = tensors[name];
    bytes.resize(static_cast<std::size_t>(all.bytes()));
    files.read(all, bytes);
  }
  return tensors;
}

}  // namespace prun::test
