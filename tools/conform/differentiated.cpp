#include "conform/differentiated.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.hpp"

namespace prun {
namespace {

std::unique_ptr<Program> with_backward(std::unique_ptr<Program> program) {
  verify(*program);
  add_backward(*program);
  verify(*program);
  return program;
}

}  // namespace

Differentiated::Differentiated(std::unique_ptr<Program> program, const Objective& objective,
                               KernelsOf kernels, double spread)
    : program_(with_backward(std::move(program))),
      objective_(objective),
      values_(*program_, std::move(kernels)) {
  const RandomStream draw(5, stream_id("operands"));
  std::uint64_t next = 0;
  const auto fill = [&](Id id, double size) {
    std::vector<double> numbers(static_cast<std::size_t>(program_->value(id).elements()));
    for (double& x : numbers) x = size * draw.normal(next++);
    values_.set(id, numbers);
  };
  for (Id id : program_->parameters()) fill(id, spread);
  if (objective_.result != none) fill(arriving(), 1);
}

Id Differentiated::arriving() const { return program_->segment(last()).outgoing_gradient; }

double Differentiated::objective(const Interpreter::Before& before) {
  if (objective_.loss != none)
    values_.set(
        objective_.loss,
        std::vector<double>(static_cast<std::size_t>(program_->value(objective_.loss).elements()), 0.0));
  for (Id segment = 1; segment <= last(); ++segment) {
    if (segment > 1)
      values_.set(program_->segment(segment).incoming,
                  values_.numbers(program_->segment(segment - 1).outgoing));
    values_.run(segment, FunctionKind::forward, before);
  }
  if (objective_.result == none) {
    const std::vector<double> losses = values_.numbers(objective_.loss);
    return values_.numbers(objective_.loss_scale)[0] * std::accumulate(losses.begin(), losses.end(), 0.0);
  }
  const std::vector<double> y = values_.numbers(objective_.result), dy = values_.numbers(arriving());
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

void Differentiated::differentiate(const Interpreter::Before& before) {
  for (Id id : program_->parameters())
    if (const Id gradient = program_->value(id).gradient; gradient != none)
      values_.set(gradient,
                  std::vector<double>(static_cast<std::size_t>(program_->value(id).elements()), 0.0));
  objective(before);
  for (Id segment = last(); segment >= 1; --segment) {
    values_.run(segment, FunctionKind::backward, before);
    if (segment > 1)
      values_.set(program_->segment(segment - 1).outgoing_gradient,
                  values_.numbers(program_->segment(segment).incoming_gradient));
  }
}

std::optional<Differentiated::Miss> Differentiated::compare(double tolerance, std::size_t most_elements) {
  constexpr double step = 1e-5;
  differentiate();
  std::map<Id, std::vector<double>> gradients;  // are read now: a head adds into them with every forward
  for (Id id : program_->parameters())
    gradients[id] = program_->value(id).gradient == none
                        ? std::vector<double>(values_.numbers(id).size(), 0.0)
                        : gradient(id);
  std::optional<Miss> worst;
  double distance = 1;
  for (const auto& [parameter, analytic] : gradients) {
    const Id id = parameter;
    if (program_->value(id).frozen) continue;
    const std::vector<double> start = values_.numbers(id);
    const std::size_t stride = (start.size() + most_elements - 1) / most_elements;
    // The last element is one of them.
    const auto behind = [&](std::size_t i) {
      return i + 1 == start.size() ? i + 1 : std::min(i + stride, start.size() - 1);
    };
    for (std::size_t i = 0; i < start.size(); i = behind(i)) {
      const auto at = [&](double x) {
        std::vector<double> moved = start;
        moved[i] = x;
        values_.set(id, moved);
        return objective();
      };
      const double difference = (at(start[i] + step) - at(start[i] - step)) / (2 * step);
      const double off = std::abs(analytic[i] - difference) / (tolerance * (1 + std::abs(difference)));
      if (off <= distance) continue;  // NaN counts as far off
      distance = std::isnan(off) ? INFINITY : off;
      worst = Miss{id, i, analytic[i], difference};
    }
    values_.set(id, start);
  }
  return worst;
}

}  // namespace prun
