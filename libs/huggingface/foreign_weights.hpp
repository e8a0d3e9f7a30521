// Reads a model's parameters out of a directory that others wrote, as floats, any elements at a time. A
// tensor may be there as codes of MXFP4 instead, in the form of gpt-oss: X of shape [n, in, out] is made of
// X_blocks [n, out, in / 32, 16], two codes a byte, and X_scales [n, out, in / 32], powers of two.
#pragma once

#include <span>

#include "huggingface/directory.hpp"
#include "huggingface/map.hpp"

namespace prun {

class ForeignReader {
 public:
  // Throws if the directory lacks a tensor of the program's parameters, has one of another shape, of a type
  // that is not read, one that the program does not need, or a second copy of one with other numbers. All
  // arguments must outlive this.
  ForeignReader(const Program& program, const ForeignMap& map, const ForeignDirectory& directory);

  // Reads elements [first, first + to.size()) of a parameter of a layer. Every number that fp32, bf16 and
  // fp16 hold, and each code times its scale, is a float exactly. Throws if one is not finite, naming tensor
  // and element.
  void read(Id parameter, std::int64_t layer, std::int64_t first, std::span<float> to) const;
  // Returns the type that all tensors of a parameter have; fp32 if they differ or prun does not compute with
  // it.
  DType type_of(Id parameter, std::int64_t layer) const;

 private:
  struct Source {
    const ForeignDirectory::Tensor* tensor;
    const ForeignDirectory::Tensor* scales = nullptr;  // those of codes
  };

  const ForeignDirectory::Tensor* find(const std::string& name) const;
  Source source(const ForeignPiece& piece, std::int64_t layer) const;
  void check_codes(const ForeignPiece& piece, const Source& found) const;
  void check(const ForeignPiece& piece, std::int64_t layer) const;
  void check_copies() const;

  const Program& program_;
  const ForeignMap& map_;
  const ForeignDirectory& directory_;
};

}  // namespace prun
