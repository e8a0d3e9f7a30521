// The files of a checkpoint: each has slices of whole tensors, and says of which. A slice that is not a whole
// tensor is described in the file's metadata, `prun.slices`:
//   {"block.0.qkv.weight": {"whole": [4,3,8,32], "start": [2,0,0,0]},            a box, of the entry's shape
//    "block.0.qkv.weight.m": {"whole": [4,3,8,32], "start": [2,0,0,0],
//                             "extent": [2,3,8,32], "first": 768}}              elements of a box, from that
//                             on
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/safetensors.hpp"
#include "base/slice.hpp"
#include "train/checkpoint/manifest.hpp"

namespace prun {

// Hands the bytes of a slice, by its number, to `write`, in as many pieces as it likes.
using WriteBytes = std::function<void(std::span<const std::byte>)>;
using BytesOfSlice = std::function<void(std::size_t number, const WriteBytes& write)>;

// Writes one file of tensors with different names, whose pieces come in any order. It appears whole at
// finish() or not at all.
class SlicesWriter {
 public:
  SlicesWriter(const std::filesystem::path& file, const std::vector<TensorSlice>& slices);

  // Writes bytes of a slice, by its number, which have a checksum of their own.
  void write_chunk(std::size_t slice, std::uint64_t chunk, std::span<const std::byte> bytes) {
    writer_.write_chunk(places_[slice], chunk, bytes);
  }
  // Writes every slice, one after the other.
  void write_all(const BytesOfSlice& bytes);
  void finish() { writer_.finish(); }

 private:
  SlicesWriter(const std::filesystem::path& file, const std::vector<TensorSlice>& slices,
               const std::vector<std::string>& names);

  SafetensorsWriter writer_;
  std::vector<std::size_t> places_;  // number in the file, by slice
};

// Does the same in one call.
void write_slices(const std::filesystem::path& file, const std::vector<TensorSlice>& slices,
                  const BytesOfSlice& bytes);

// Returns what the manifest says of a file that was written.
Manifest::File file_record(const std::filesystem::path& file);

// Reads a checkpoint. All its files' headers are checked: against the manifest, and that together they have
// every element of each tensor.
class CheckpointFiles {
 public:
  struct Piece {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    Slice slice;
  };
  struct Tensor {
    DType type = DType::f32;
    Extents shape;
    std::vector<Piece> pieces;
  };

  // Throws bad_input or not_found if something is missing or damaged.
  explicit CheckpointFiles(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  // Returns a tensor; throws bad_input if there is none.
  const Tensor& tensor(std::string_view name) const;
  // Reads the elements of a slice, from all files that have some, and compares their checksums: throws
  // bad_input if something is not as it was written.
  void read(const TensorSlice& wanted, std::span<std::byte> to) const;

 private:
  void add(const SafetensorsFile& file);
  void check_whole(const std::string& name, const Tensor& tensor) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

// Returns the tensor that has a parameter's numbers best: its master copy, if there is one, or the state of
// that name, unless that is empty. A parameter that is not trained has no state, and stands for itself.
std::string weights_of(const CheckpointFiles& files, const std::string& parameter,
                       const std::string& state = {});
// Throws bad_input if no parameter has such a state.
void check_has(const CheckpointFiles& files, const std::string& state);

}  // namespace prun
