// Evaluates during training, on data that is not trained on: in the memory of training and, if a strategy
// asks for it, with a state in the place of the weights as well.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execute/device_memory.hpp"
#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"
#include "train/loop/evaluator.hpp"

namespace prun {

// ------------------------------------------------------------ stand-ins

// Puts other numbers in place of the weights, for as long as a program reads them: an optimizer state
// (StateRequest), or what a strategy has stand for them (Value::stand_in). Each rank does it with what it
// holds, through host memory, so no layout needs a kernel for it.
class StandIns {
 public:
  enum class Of : std::uint8_t { optimizer_states, stand_ins };
  // Throws unsupported if weights could not come back as they were.
  StandIns(const Assembly& assembly, const PlanMemory& memory, Of of);

  // These are called alternately, while neither a step nor a save runs. What ranks hold of each other's parts
  // (ZeRO below stage 3) is up to date once the program that reads the numbers has gathered it.
  void put_in_place() { each_piece(&StandIns::put_piece_in_place); }
  void put_back() { each_piece(&StandIns::put_piece_back); }

 private:
  // Names elements of a value of one instance.
  struct Place {
    Id value = none;
    DType type = DType::f32;
    std::int64_t at = 0;
  };
  // Says where the same elements lie in a parameter, its master copy (if any) and what stands for them.
  struct Tensor {
    std::int32_t instance = 0;
    std::int64_t count = 0;
    Place parameter, master, other;
  };
  struct Piece {
    const Tensor& tensor;
    std::int64_t first, count;
  };

  void add_optimizer_state(Id parameter, std::int32_t instance);
  void add_stand_in(Id parameter, std::int32_t instance);
  void add(Id parameter, std::int32_t instance, const LocalPart& state);
  void check(const Tensor& tensor, Id parameter) const;
  void each_piece(void (StandIns::*body)(const Piece&));
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

class Validation {
 public:
  // `parts` are over the memory of training.
  Validation(const ForwardParts& parts, Samples samples);

  // Says whether other numbers take the place of weights meanwhile.
  bool moves_weights() const { return states_.has_value() || stand_ins_.has_value(); }
  const Samples& samples() const { return evaluator_.samples(); }
  // Evaluates after so many updates. No step runs meanwhile and, if anything stands for weights, no save
  // either. Every rank calls it.
  Evaluation run(std::int64_t updates);

 private:
  const Recipe& recipe_;
  Evaluator evaluator_;
  std::string state_;  // name of the optimizer state that is evaluated as well
  std::optional<StandIns> states_, stand_ins_;
};

}  // namespace prun
