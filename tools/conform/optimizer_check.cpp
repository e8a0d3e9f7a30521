#include "conform/optimizer_check.hpp"

#include <cmath>

#include "base/random.hpp"
#include "conform/isolated.hpp"
#include "conform/ops_beside.hpp"
#include "conform/tiny_recipe.hpp"
#include "plugin/traits.hpp"
#include "prun/optimizer.hpp"

namespace prun {
namespace {

using Numbers = std::vector<double>;

constexpr Id segment_id = 1;

Numbers drawn(const std::string& what, std::int64_t begin, std::int64_t rows, std::int64_t columns) {
  const RandomStream draw(5, stream_id(what));
  Numbers numbers;
  for (std::int64_t i = begin * columns; i < (begin + rows) * columns; ++i)
    numbers.push_back(draw.normal(static_cast<std::uint64_t>(i)));
  return numbers;
}

// Updates rows [begin, begin + rows) of a parameter in fp64.
class Updates {
 public:
  Updates(OptimizerInterface& optimizer, const OpsBeside& ops, const KernelsOf& kernels, std::int64_t begin,
          std::int64_t rows)
      : begin_(begin), rows_(rows), program_(write(optimizer, ops, rows)), values_(*program_, kernels) {
    values_.set(parameter_, drawn("parameter", begin, rows, columns));
    values_.set(program_->runtime("lr"), {0.01});
  }

  // With another clip factor, gradients are so much larger: the update must be the same.
  void clip_by(double factor) { clip_ = factor; }
  void update(int step, bool keep) {
    values_.set(program_->runtime("clip"), {clip_});
    values_.set(program_->runtime("step"), {static_cast<double>(step)});
    values_.set(program_->runtime("keep"), {keep ? 1.0 : 0.0});
    Numbers gradient = drawn("gradient " + std::to_string(step), begin_, rows_, columns);
    for (double& x : gradient) x /= clip_;
    values_.set(program_->value(parameter_).gradient, gradient);
    values_.run(segment_id, FunctionKind::update, [](const KernelDef& kernel, const KernelCall& call) {
      try_memory(kernel, call);
      try_threads(kernel, call);
    });
  }
  std::string text() const { return to_text(*program_); }
  // Returns the parameter and its state.
  std::vector<Numbers> numbers() {
    std::vector<Numbers> all = {values_.numbers(parameter_)};
    for (Id state : program_->value(parameter_).states) all.push_back(values_.numbers(state));
    return all;
  }

 private:
  static constexpr std::int64_t columns = 6;

  std::unique_ptr<Program> write(OptimizerInterface& optimizer, const OpsBeside& ops, std::int64_t rows) {
    const Precision in_fp64{DType::f64, DType::f64, DType::f64, DType::f64};
    auto program = std::make_unique<Program>(ops.registry(), in_fp64, ModelContext{1, 1});
    const Segment segment = ProgramRef(&program_api(), program.get()).segment("trial");
    parameter_ = segment.matrix(segment.weight("parameter", {{"rows", rows}, {"columns", columns}}, zeros()),
                                {.columns = 1});
    segment.outgoing(segment.op("scale", {parameter_}, {{"factor", 1.0}}));
    add_backward(*program);
    add_update(*program, one_optimizer(optimizer, UpdateUnit::matrix));
    verify(*program);
    return program;
  }

  const std::int64_t begin_, rows_;
  double clip_ = 1;
  Id parameter_ = none;
  std::unique_ptr<Program> program_;
  Interpreter values_;
};

void check_clip(const std::vector<Numbers>& clipped, const std::vector<Numbers>& whole) {
  constexpr double tolerance = 1e-9;
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (std::size_t e = 0; e < whole[i].size(); ++e)
      if (!(std::abs(clipped[i][e] - whole[i][e]) <= tolerance * (1 + std::abs(whole[i][e]))))
        throw_error(
            ErrorCode::bad_input,
            "an update of gradients that are four times as large, with `clip` 0.25, gives other numbers: "
            "the op must multiply gradients by UpdateContext::clip");
}

void check_finite(const std::vector<Numbers>& numbers) {
  for (const Numbers& tensor : numbers)
    for (double x : tensor)
      if (!std::isfinite(x))
        throw_error(ErrorCode::bad_input,
                    "an update leaves a number that is not finite, of gradients that are");
}

}  // namespace

CheckFinding check_optimizer(const TriedPlugin& plugin, const std::vector<SearchPlace>& places) {
  auto& optimizer = *static_cast<OptimizerInterface*>(plugin.object);
  const CpuKernels cpu(places);
  constexpr std::int64_t rows = 4;
  plugin.doing("an update");
  try {
    const OpsBeside ops(plugin.path.parent_path(), places);
    const KernelsOf kernels = ops.with_kernels(cpu.kernels());
    Updates whole(optimizer, ops, kernels, 0, rows), first(optimizer, ops, kernels, 0, rows / 2),
        second(optimizer, ops, kernels, rows / 2, rows / 2), clipped(optimizer, ops, kernels, 0, rows);
    clipped.clip_by(0.25);
    check_alike_elsewhere("update()", [&] { return Updates(optimizer, ops, kernels, 0, rows).text(); });
    const std::vector<Numbers> start = whole.numbers();
    for (int step = 1; step <= 3; ++step) {
      const std::vector<Numbers> before = whole.numbers();
      whole.update(step, false);
      if (whole.numbers() != before)
        throw_error(ErrorCode::bad_input,
                    "an update changes something though `keep` is 0: give the op UpdateContext::keep");
      for (Updates* updates : {&whole, &first, &second, &clipped}) updates->update(step, true);
      check_finite(whole.numbers());
      check_clip(clipped.numbers(), whole.numbers());
    }
    if (whole.numbers().front() == start.front())
      throw_error(ErrorCode::bad_input,
                  "three updates with gradients that are not zero leave the parameter as it was");
    if (trait_of(plugin.note, "elementwise") != "yes")
      return {"not checked: elements apart, since it does not say elementwise=yes"};
    std::vector<Numbers> parts = first.numbers(), rest = second.numbers();
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].insert(parts[i].end(), rest[i].begin(), rest[i].end());
    if (parts != whole.numbers())
      throw_error(ErrorCode::bad_input,
                  "it says elementwise=yes, and gives other numbers for a parameter in two parts");
    return {};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::not_found) throw;
    return {detail::concat("not checked: ", error.what()), false};
  }
}

}  // namespace prun
