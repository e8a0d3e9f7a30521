#include "generate/generator.hpp"

#include <algorithm>

#include "program/text_steps.hpp"

namespace prun {
namespace {

// Says whether the rank's plan writes a value.
bool writes(const Plan& plan, Id value) {
  for (const PlannedFunction& function : plan.functions)
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        if (operand.value == value) return true;
  return false;
}

// Says whether some op keeps a state of all positions together, which does not grow with the text: what it
// was further back is not known any more.
bool forgets(const Program& program) {
  for (Id id = 0; id < program.value_count(); ++id) {
    const Value& value = program.value(id);
    const auto by_position = [](const Dim& dim) { return dim.name == Name("kept"); };
    if (value.role == Role::state && value.carried && value.name.starts_with("kept_") &&
        std::none_of(value.dims.begin(), value.dims.end(), by_position))
      return true;
  }
  return false;
}

// Returns how many positions of a sequence come before those that the head has logits of: an encoder's.
std::size_t positions_before_head(const Program& program, const StagedValues& staged) {
  const std::optional<Dim> of_head = positions_of_head(program);
  if (staged.position == none || !of_head) return 0;
  return static_cast<std::size_t>(program.value(staged.tokens).dims[1].extent - of_head->extent);
}

}  // namespace

Generator::Generator(const ForwardParts& parts)
    : assembly_(parts.assembly),
      program_(parts.program),
      has_head_(writes(parts.plan, staged_values(parts.program).logits)),
      forgets_(forgets(parts.program)),
      executor_(parts.program, parts.plan, parts.assembly.devices(), options_of(parts), parts.comms,
                parts.probes),
      staged_(staged_values(parts.program)),
      before_head_(positions_before_head(parts.program, staged_)) {}

std::vector<double> Generator::logits(std::span<const std::int32_t> tokens) {
  PRUN_CHECK(!tokens.empty(), "logits of what follows nothing");
  const auto seq = static_cast<std::size_t>(assembly_.batch().seq);
  if (staged_.position == none) {
    run({}, tokens.last(std::min(tokens.size(), seq)), 0);
  } else {
    PRUN_CHECK(tokens.size() <= seq && tokens.size() > before_head_, "a text of ", tokens.size(),
               " tokens, and ", seq, " positions are kept, ", before_head_, " of them of an encoder");
    const auto most = static_cast<std::ptrdiff_t>(std::min(known_.size(), tokens.size() - 1));
    const auto differs = std::mismatch(tokens.begin(), tokens.begin() + most, known_.begin()).first;
    const std::span<const std::int32_t> given = tokens.first(before_head_),
                                        text = tokens.subspan(before_head_);
    const auto few = static_cast<std::size_t>(batch_shape(assembly_, program_).positions) - before_head_;
    const auto alike = static_cast<std::size_t>(differs - tokens.begin());
    std::size_t at = alike < before_head_ ? 0 : alike - before_head_;
    if (forgets_ && at < last_) at = 0;
    for (; at < text.size(); at += few)
      run(given, text.subspan(at, std::min(few, text.size() - at)), static_cast<std::int64_t>(at));
    known_.assign(tokens.begin(), tokens.end());
  }
  return has_head_ ? read() : std::vector<double>();
}

// A text begins at its first position: then all is computed that its other steps find there.
void Generator::run(std::span<const std::int32_t> given, std::span<const std::int32_t> tokens,
                    std::int64_t position) {
  stage(given, tokens, position);
  last_ = static_cast<std::size_t>(position);
  executor_.start_step(position == 0 ? Iteration::beginning : Iteration::going_on);
  executor_.finish_step();
  ++steps_;
}

// Every row of every microbatch has the same text: each rank with the head has its logits. No position of the
// text looks at tokens behind it.
void Generator::stage(std::span<const std::int32_t> given, std::span<const std::int32_t> tokens,
                      std::int64_t position) {
  const BatchShape shape = batch_shape(assembly_, program_);
  const auto first = static_cast<std::int64_t>(given.size()),
             last = first + static_cast<std::int64_t>(tokens.size()) - 1;
  for (const BatchTarget& target : batch_targets(memory(), staged_, steps_, assembly_.batch().accumulate))
    for (std::int64_t row = 0; row < shape.micro; ++row) {
      if (target.samples) target.samples[row] = 0;
      for (std::int64_t i = 0; i < shape.positions; ++i) {
        const std::int64_t at = shape.position(i), to = row * shape.positions + i;
        target.tokens[to] = at < first   ? given[static_cast<std::size_t>(at)]
                            : at <= last ? tokens[static_cast<std::size_t>(at - first)]
                                         : 0;
        target.targets[to] = at == last ? 0 : -1;
      }
    }
  if (staged_.position != none)
    *reinterpret_cast<double*>(memory().staged(staged_.position, steps_, 0)) = static_cast<double>(position);
  stage_constants(assembly_, memory(), staged_, steps_);
}

std::vector<double> Generator::read() const {
  const Value& value = program_.value(staged_.logits);
  const std::byte* const at = memory().staged(staged_.logits, steps_ - 1, 0);
  std::vector<double> row(static_cast<std::size_t>(value.dims.back().extent));
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = value.dtype == DType::f64 ? reinterpret_cast<const double*>(at)[i]
                                       : static_cast<double>(reinterpret_cast<const float*>(at)[i]);
  return row;
}

}  // namespace prun
