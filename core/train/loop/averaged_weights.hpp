// Puts averages of the weights (optimizer.average) in place of the weights, for as long as a program reads
// them. Each rank does it with what it holds, through host memory, so no layout needs a kernel for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "execute/device_memory.hpp"
#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

class AveragedWeights {
 public:
  // Throws unsupported if weights could not come back as they were.
  AveragedWeights(const Assembly& assembly, const PlanMemory& memory);

  // These are called alternately, while neither a step nor a save runs. What ranks hold of each other's parts
  // (ZeRO below stage 3) is up to date once the program that reads the averages has gathered it.
  void put_in_place() { each_piece(&AveragedWeights::put_piece_in_place); }
  void put_back() { each_piece(&AveragedWeights::put_piece_back); }

 private:
  // Names elements of a value of one instance.
  struct Place {
    Id value = none;
    DType type = DType::f32;
    std::int64_t at = 0;
  };
  // Says where the same elements lie in a parameter, its master copy (if any) and their average.
  struct Tensor {
    std::int32_t instance = 0;
    std::int64_t count = 0;
    Place parameter, master, average;
  };
  struct Piece {
    const Tensor& tensor;
    std::int64_t first, count;
  };

  void add(Id parameter, std::int32_t instance);
  void check(const Tensor& tensor, Id parameter) const;
  void each_piece(void (AveragedWeights::*body)(const Piece&));
  void put_piece_in_place(const Piece& piece);
  void put_piece_back(const Piece& piece);
  void change_places(const Piece& piece);
  void change_places_with_halves(const Piece& piece);
  // Sets the parameter to these numbers in its type.
  void round_from(const Piece& piece, const Place& numbers);

  std::span<std::byte> buffer(std::size_t number, std::int64_t bytes);
  std::span<std::byte> read(const Piece& piece, const Place& from, std::size_t to);
  void write(const Piece& piece, const Place& to, std::span<const std::byte> from);

  const Assembly& assembly_;
  const PlanMemory& memory_;
  std::vector<Tensor> tensors_;
  Pinned buffers_;
};

}  // namespace prun
