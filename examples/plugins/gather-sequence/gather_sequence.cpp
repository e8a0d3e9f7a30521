// A parallel strategy: each coordinate of an axis takes its part of every sequence and keeps the parameters
// whole. What treats positions alike (embedding, norms, MLP, head) runs on the part; in front of attention
// the parts come together, and every rank computes it: `context`, which prun has, shares that out as well.
// Gradients, the loss and the count of targets become partial sums over the axis, so that ZeRO may share out
// state over it: a use for several ranks where the batch is a single sequence. (Not with biases in front of
// attention, whose gradients are whole.)
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class GatherSequence final : public Strategy {
 public:
  explicit GatherSequence(const Options& options)
      : axis_(options.text("axis")), least_(options.integer("least_tokens")) {}

  void apply(Phase, ProgramRef program) override {
    const std::int64_t ranks = program.axis(axis_).extent, tokens = sequence(program);
    if (tokens % ranks != 0)
      throw_error(ErrorCode::bad_input, "sequences of ", tokens, " tokens cannot be cut into ", ranks,
                  " equal parts; choose model.seq as a multiple of mesh.", axis_);
    if (tokens / ranks < least_)
      throw_error(ErrorCode::bad_input, "each rank would get ", tokens / ranks,
                  " tokens of a sequence, and least_tokens is ", least_, "; lower it or mesh.", axis_);
    program.split("seq", axis_);
  }

 private:
  static std::int64_t sequence(ProgramRef program) {
    for (const Segment& segment : program.segments())
      for (const Id id : segment.values()) {
        const ValueInfo value = program.value(id);
        if (value.role != Role::input) continue;
        for (std::int32_t d = 0; d < value.rank; ++d)
          if (value.dims[d].name == Name("seq")) return value.dims[d].extent;
      }
    throw_error(ErrorCode::bad_input, "the model's inputs have no dimension 'seq' to cut");
  }

  std::string axis_;
  std::int64_t least_;
};

}  // namespace

PRUN_PLUGIN(strategy, GatherSequence, "gather-sequence", "1.0.0",
            "Splits each sequence over an axis of the mesh", "phase=shard",
            "axis         | string | cp | | Mesh axis to split sequences over\n"
            "least_tokens | int | 1 | 1..1000000000 | Minimum number of tokens of a sequence per rank\n");
