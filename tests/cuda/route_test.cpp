#include "route/cuda.hpp"

#include "balance/cuda.hpp"
#include "gate/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::route_test {
namespace {

using Route = CudaTest;

template <class Body>
void for_scores(Body body) {
  body.template operator()<double>();
  body.template operator()<float>();
}

template <class C>
double bound() {
  return std::is_same_v<C, double> ? 1e-12 : 1e-5;
}

std::vector<Attr> attrs_of(const cuda::RouteShape& s) {
  return {{.i = s.sigmoid}, {.i = s.normalise},     {.f = s.scale},     {.i = s.choices},
          {.i = s.groups},  {.i = s.chosen_groups}, {.i = s.group_best}};
}

const cuda::RouteShape shapes[] = {
    {.positions = 45, .routes = 8, .choices = 2},
    {.positions = 45, .routes = 72, .choices = 8, .normalise = false},
    {.positions = 46,
     .routes = 64,
     .choices = 6,
     .sigmoid = true,
     .scale = 2.5,
     .groups = 8,
     .chosen_groups = 3},
    {.positions = 3, .routes = 12, .choices = 4, .groups = 4, .chosen_groups = 2, .group_best = 1}};

TEST_F(Route, ChoosesWhatTheCpuChooses) {
  for (const cuda::RouteShape& s : shapes)
    for_scores([&]<class C>() {
      const DType type = dtype_of<C>();
      // Of few values, so that there are ties.
      Value logits = random_value(type, {1, s.positions, s.routes}, 1, 4),
            bias = random_value(type, {s.routes}, 2, 0.1);
      for (std::size_t i = 0; i < logits.size(); ++i) logits.set(i, std::floor(logits[i]) / 2);
      for (std::size_t i = 0; i < bias.size(); ++i) bias.set(i, 0);
      const std::vector<std::int64_t> chosen = {1, s.positions, s.choices};
      const std::vector<Value> want =
          cpu("route", {logits, bias, Value(DType::i32, chosen), Value(type, chosen)}, attrs_of(s));
      const OnDevice on_logits(logits), on_bias(bias);
      OnDevice index(DType::i32, chosen), weight(type, chosen);
      cuda::route<C>(on_logits.as<C>(), on_bias.as<C>(), index.as<std::int32_t>(), weight.as<C>(), s,
                     nullptr);
      EXPECT_EQ(index.value().numbers(), want[2].numbers()) << s.routes;
      expect_close(weight.value(), want[3].numbers(), bound<C>(), "weight");
      const Value d = random_value(type, chosen, 3);
      const OnDevice on_d(d);
      OnDevice dlogits(type, logits.dims());
      const std::vector<Attr> all = attrs_of(s);
      cuda::route_grad<C>(on_logits.as<C>(), index.as<std::int32_t>(), on_d.as<C>(), dlogits.as<C>(), s,
                          nullptr);
      expect_close(
          dlogits.value(),
          cpu("route_grad", {logits, want[2], d, Value(type, logits.dims())}, {all[0], all[1], all[2]})[3]
              .numbers(),
          bound<C>(), "dlogits");
    });
}

TEST_F(Route, CountsWhatTheCpuCounts) {
  for (const std::int64_t sigmoid : {0, 1})
    for_scores([&]<class C>() {
      const DType type = dtype_of<C>();
      const cuda::BalanceShape s{3, 150, 2, 40, sigmoid != 0, 0.3, 0.1};
      std::vector<std::int64_t> chosen(900), counted(450, -1);
      for (std::size_t i = 0; i < 900; ++i) chosen[i] = static_cast<std::int64_t>(i * 7 % 40);
      counted[3] = counted[449] = 1;  // the sequence between them is padding
      const Value logits = random_value(type, {3, 150, 40}, 1, 3),
                  index = integers(DType::i32, {3, 150, 2}, chosen),
                  targets = integers(DType::i32, {3, 150}, counted), scale = number(0.25),
                  counts = random_value(DType::f64, {1, 40}, 2), losses = random_value(DType::f64, {1, 2}, 3);
      const std::vector<Attr> attrs = {{.i = sigmoid}, {.f = 0.3}, {.f = 0.1}};
      const std::vector<Value> want = cpu("balance", {logits, index, targets, scale, counts, losses}, attrs);
      const OnDevice on_logits(logits), on_index(index), on_targets(targets), on_scale(scale);
      OnDevice on_counts(counts), on_losses(losses), dlogits(type, logits.dims());
      const DeviceWorkspace room(cuda::balance_workspace(s));
      cuda::balance<C>(on_logits.as<C>(), on_index.as<std::int32_t>(), on_targets.as<std::int32_t>(),
                       on_scale.as<double>(), on_counts.as<double>(), on_losses.as<double>(), s, room.data(),
                       nullptr);
      expect_close(on_counts.value(), want[4].numbers(), 1e-12, "counts");
      expect_close(on_losses.value(), want[5].numbers(), bound<C>(), "losses");
      cuda::balance_grad<C>(on_logits.as<C>(), on_index.as<std::int32_t>(), on_targets.as<std::int32_t>(),
                            on_scale.as<double>(), dlogits.as<C>(), s, room.data(), nullptr);
      expect_close(dlogits.value(),
                   cpu("balance_grad", {logits, index, targets, scale, Value(type, logits.dims())}, attrs)[4]
                       .numbers(),
                   bound<C>(), "dlogits");
      const Value bias = random_value(type, {40}, 4), keep = number(1);
      OnDevice on_bias(bias);
      const OnDevice on_keep(keep);
      cuda::steer<C>(on_counts.as<double>(), on_keep.as<double>(), on_bias.as<C>(), 40, 0.25, nullptr);
      EXPECT_EQ(on_bias.value().numbers(),
                cpu("steer", {on_counts.value(), keep, bias}, {{.f = 0.25}})[2].numbers());
    });
}

TEST_F(Route, GatesAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value x = random_value(type, {2, 5, 300}, 1), gate = random_value(type, {2, 5, 1}, 2, 3),
                dy = random_value(type, {2, 5, 300}, 3);
    const OnDevice on_x(x, offset), on_gate(gate, offset), on_dy(dy, offset);
    OnDevice y(type, x.dims(), offset), dgate(type, gate.dims(), offset);
    cuda::sigmoid_gate<T>(on_x.as<T>(), on_gate.as<T>(), y.as<T>(), 10, 300, nullptr);
    cuda::sigmoid_gate_grad<T>(on_dy.as<T>(), on_x.as<T>(), on_gate.as<T>(), dgate.as<T>(), 10, 300, nullptr);
    expect_close(y.value(), cpu("sigmoid_gate", {x, gate, Value(type, x.dims())})[2].numbers(),
                 tolerance(type), "y");
    expect_close(dgate.value(),
                 cpu("sigmoid_gate_grad", {dy, x, gate, Value(type, gate.dims())})[3].numbers(),
                 4 * tolerance(type), "dgate");
  });
}

}  // namespace
}  // namespace prun::test::route_test
