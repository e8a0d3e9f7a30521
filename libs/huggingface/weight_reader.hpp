// Reads a model's parameters out of a directory that others wrote, as floats, any elements at a time. A
// tensor may be there as codes of MXFP4 instead, in the form of gpt-oss: X of shape [n, in, out] is made of
// X_blocks [n, out, in / 32, 16], two codes a byte, and X_scales [n, out, in / 32], powers of two.
#pragma once

#include <algorithm>
#include <filesystem>
#include <list>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/safetensors.hpp"
#include "base/slice.hpp"
#include "huggingface/map.hpp"

namespace prun {

// ------------------------------------------------------------------- directory
// Reads the weights of a directory that others wrote: model.safetensors, or the files that
// model.safetensors.index.json names.

inline constexpr const char* weights_name = "model.safetensors";
inline constexpr const char* weights_index_name = "model.safetensors.index.json";

class HuggingFaceDirectory {
 public:
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  // Opens all files and checks their headers; throws not_found or bad_input.
  explicit HuggingFaceDirectory(std::filesystem::path folder);
  // Opens one file in it.
  HuggingFaceDirectory(std::filesystem::path folder, std::string_view file);

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

// ------------------------------------------------------------------- weight reader

class HuggingFaceReader {
 public:
  // Throws if the directory lacks a tensor of the program's parameters, has one of another shape, of a type
  // that is not read, one that the program does not need, or a second copy of one with other numbers. All
  // arguments must outlive this.
  HuggingFaceReader(const Program& program, const HuggingFaceMap& map, const HuggingFaceDirectory& directory);

  // Reads elements [first, first + to.size()) of a parameter of a layer. Every number that fp32, bf16 and
  // fp16 hold, and each code times its scale, is a float exactly. Throws if one is not finite, naming tensor
  // and element.
  void read(Id parameter, std::int64_t layer, std::int64_t first, std::span<float> to) const;
  // Returns the type that all tensors of a parameter have; fp32 if they differ or prun does not compute with
  // it.
  DType type_of(Id parameter, std::int64_t layer) const;

 private:
  struct Source {
    const HuggingFaceDirectory::Tensor* tensor;
    const HuggingFaceDirectory::Tensor* scales = nullptr;  // those of codes
  };

  const HuggingFaceDirectory::Tensor* find(const std::string& name) const;
  Source source(const HuggingFacePiece& piece, std::int64_t layer) const;
  void check_codes(const HuggingFacePiece& piece, const Source& found) const;
  void check(const HuggingFacePiece& piece, std::int64_t layer) const;
  void check_copies() const;

  const Program& program_;
  const HuggingFaceMap& map_;
  const HuggingFaceDirectory& directory_;
};

// ------------------------------------------------------------------- runs
// Walks through a box, row by row along its last dimension.

// Calls body(index, count) for elements [first, first + count) of a box in runs along its last dimension:
// where each begins, and how many elements it has. No extent may be 0.
template <class Body>
void each_run(const Extents& box, std::int64_t first, std::int64_t count, Body&& body) {
  Extents index(box.size());
  for (std::size_t d = box.size(); d-- > 0; first /= box[d]) index[d] = first % box[d];
  while (count > 0) {
    const std::int64_t run = std::min(box.back() - index.back(), count);
    body(static_cast<const Extents&>(index), run);
    count -= run;
    index.back() += run;
    for (std::size_t d = box.size() - 1; d > 0 && index[d] == box[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

}  // namespace prun
