#include "experts/cuda.hpp"

#include "router/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::experts_test {
namespace {

using Experts = CudaTest;

// An expert without rows, one with many, tiles that are not full, choices of others' experts, and more
// choices than a block sorts at a time.
struct Problem {
  std::int64_t batch, seq, choices, experts, first, own, hidden, ffn;

  cuda::ExpertsShape shape() const { return {batch * seq, choices, own, first, hidden, ffn}; }
  Value index() const {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < batch * seq * choices; ++i) {
      const std::int64_t e = i * i % 11 < 7 ? 0 : i * 3 % experts;
      numbers.push_back(e == 1 ? 2 % experts : e);
    }
    return integers(DType::i32, {batch, seq, choices}, numbers);
  }
};

const Problem problems[] = {
    {2, 45, 2, 5, 0, 5, 40, 24}, {1, 70, 3, 6, 2, 3, 70, 33}, {1, 700, 2, 6, 2, 3, 8, 8}};

template <class T>
double bound() {
  return std::is_same_v<T, double> ? 1e-12 : std::is_same_v<T, float> ? 2e-5 : 4e-2;
}

template <class T>
struct Case {
  static constexpr DType type = dtype_of<T>(), scores = dtype_of<cuda::Compute<T>>();
  const Problem& p;
  Value x, index, weight, up, down, dy;

  explicit Case(const Problem& problem)
      : p(problem),
        x(random_value(type, {p.batch, p.seq, p.hidden}, 1)),
        index(p.index()),
        weight(random_value(scores, {p.batch, p.seq, p.choices}, 2)),
        up(random_value(type, {p.own, 2, p.ffn, p.hidden}, 3, 0.5)),
        down(random_value(type, {p.own, p.hidden, p.ffn}, 4, 0.5)),
        dy(random_value(type, {p.batch, p.seq, p.hidden}, 5)) {}
  std::vector<std::int64_t> kept_dims() const { return {p.batch, p.seq, 2 * p.choices, p.ffn}; }
  std::vector<Start> starts() const { return {{3, 0, p.first}}; }
};

TEST_F(Experts, AreThoseOfTheCpu) {
  for (const Problem& p : problems)
    for_types([&]<class T>(std::int64_t offset) {
      const Case<T> c(p);
      const Value want = cpu("experts", {c.x, c.index, c.weight, c.up, c.down, Value(c.type, c.x.dims()), {}},
                             {{.i = p.experts}}, c.starts())[5];
      const OnDevice x(c.x, offset), index(c.index), weight(c.weight), up(c.up, offset), down(c.down, offset);
      OnDevice y(c.type, c.x.dims(), offset);
      OnDevice kept(c.type, c.kept_dims(), offset);
      for (T* const keeps : {static_cast<T*>(nullptr), kept.as<T>()}) {
        const DeviceWorkspace room(cuda::experts_workspace(p.shape(), sizeof(T), false, keeps));
        cuda::experts<T>({x.as<T>(), index.as<std::int32_t>(), weight.as<cuda::Compute<T>>(), up.as<T>(),
                          down.as<T>(), keeps},
                         y.as<T>(), p.shape(), room.data(), nullptr);
        expect_close(y.value(), want.numbers(), bound<T>(), keeps ? "y, keeping" : "y");
      }
    });
}

TEST_F(Experts, GradientsAreThoseOfTheCpu) {
  for (const Problem& p : problems)
    for_sums([&]<class T, class S>(std::int64_t offset) {
      const Case<T> c(p);
      const DType sums = dtype_of<S>();
      for (const bool begins : {true, false}) {
        const Value dup = random_value(sums, c.up.dims(), 6), ddown = random_value(sums, c.down.dims(), 7);
        const std::vector<Value> want = cpu_sums("experts_grads",
                                                 {c.x,
                                                  c.index,
                                                  c.weight,
                                                  c.up,
                                                  c.down,
                                                  c.dy,
                                                  {},
                                                  Value(c.type, c.x.dims()),
                                                  Value(c.scores, c.weight.dims()),
                                                  begins ? zeros(dup) : dup,
                                                  begins ? zeros(ddown) : ddown},
                                                 {9, 10}, {{.i = p.experts}}, c.starts());
        const OnDevice x(c.x, offset), index(c.index), weight(c.weight), up(c.up, offset),
            down(c.down, offset), dy(c.dy, offset);
        OnDevice dx(c.type, c.x.dims(), offset), dweight(c.scores, c.weight.dims()),
            to_up(begins ? poison(dup) : dup), to_down(begins ? poison(ddown) : ddown);
        const DeviceWorkspace room(cuda::experts_workspace(p.shape(), sizeof(T), true, false));
        cuda::experts_grads<T, S>(
            {x.as<T>(), index.as<std::int32_t>(), weight.as<cuda::Compute<T>>(), up.as<T>(), down.as<T>()},
            dy.as<T>(),
            {dx.as<T>(), dweight.as<cuda::Compute<T>>(), {to_up.as<S>(), begins}, {to_down.as<S>(), begins}},
            p.shape(), room.data(), nullptr);
        expect_close(dx.value(), want[7].numbers(), bound<T>(), "dx");
        expect_close(dweight.value(), want[8].numbers(), bound<T>(), "dweight");
        expect_close(to_up.value(), want[9].numbers(), 2 * bound<T>(), "dup");
        expect_close(to_down.value(), want[10].numbers(), 2 * bound<T>(), "ddown");
      }
    });
}

// What backward need not compute again is what it would have computed.
TEST_F(Experts, GradientsOfWhatWasKeptHaveTheBitsOfThoseComputedAgain) {
  for (const Problem& p : problems)
    for_types([&]<class T>(std::int64_t offset) {
      using C = cuda::Compute<T>;
      const Case<T> c(p);
      const OnDevice x(c.x, offset), index(c.index), weight(c.weight), up(c.up, offset), down(c.down, offset),
          dy(c.dy, offset);
      OnDevice y(c.type, c.x.dims(), offset), kept(c.type, c.kept_dims());
      const DeviceWorkspace room(cuda::experts_workspace(p.shape(), sizeof(T), true, false));
      cuda::ExpertsInputs<T> in{
          x.as<T>(), index.as<std::int32_t>(), weight.as<C>(), up.as<T>(), down.as<T>(), kept.as<T>()};
      cuda::experts<T>(in, y.as<T>(), p.shape(), room.data(), nullptr);
      std::vector<Value> results[2];
      for (std::vector<Value>& these : results) {
        OnDevice dx(c.type, c.x.dims(), offset), dweight(c.scores, c.weight.dims()),
            dup(c.scores, c.up.dims()), ddown(c.scores, c.down.dims());
        cuda::experts_grads<T, C>(in, dy.as<T>(),
                                  {dx.as<T>(), dweight.as<C>(), {dup.as<C>(), true}, {ddown.as<C>(), true}},
                                  p.shape(), room.data(), nullptr);
        these = {dx.value(), dweight.value(), dup.value(), ddown.value()};
        in.kept = nullptr;
      }
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(results[0][i].bytes(), results[1][i].bytes()) << "result " << i;
    });
}

// With sums in one part, and in several, of which the last is shorter; with and without tensor cores.
TEST_F(Experts, RoutersAreThoseOfTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    using C = cuda::Compute<T>;
    const DType type = dtype_of<T>(), scores = dtype_of<C>();
    for (const cuda::RouterShape& s : {cuda::RouterShape{70, 9, 45},
                                       {602, 9, 45},
                                       {70, 9, 1555},
                                       {70, 16, 72},
                                       {602, 72, 136},
                                       {300, 8, 1544}}) {
      const Value x = random_value(type, {2, s.rows / 2, s.hidden}, 1),
                  weight = random_value(type, {s.routes, s.hidden}, 2),
                  d = random_value(scores, {2, s.rows / 2, s.routes}, 3),
                  sum = random_value(scores, {s.routes, s.hidden}, 4);
      const OnDevice on_x(x, offset), on_weight(weight, offset), on_d(d);
      OnDevice logits(scores, d.dims()), dx(type, x.dims(), offset), dweight(sum);
      const std::int64_t room =
          std::max(cuda::router_workspace(s, sizeof(C)), cuda::router_weight_grad_workspace(s, sizeof(C)));
      OnDevice work(scores, {room / static_cast<std::int64_t>(sizeof(C))});
      cuda::router<T>(on_x.as<T>(), on_weight.as<T>(), logits.as<C>(), s, work.as<C>(), nullptr);
      expect_close(logits.value(), cpu("router", {x, weight, Value(scores, d.dims())})[2].numbers(),
                   bound<T>(), "logits");
      cuda::router_input_grad<T>(on_d.as<C>(), on_weight.as<T>(), dx.as<T>(), s, nullptr);
      expect_close(dx.value(), cpu("router_input_grad", {d, weight, Value(type, x.dims())})[2].numbers(),
                   bound<T>(), "dx");
      cuda::router_weight_grad<T, C>(on_x.as<T>(), on_d.as<C>(), {dweight.as<C>(), false}, s, work.as<C>(),
                                     nullptr);
      expect_close(dweight.value(), cpu("router_weight_grad", {x, d, sum})[2].numbers(), bound<T>(),
                   "dweight");
    }
  });
}

// However many positions there are: else a layout would choose other experts.
TEST_F(Experts, ScoresOfAPositionDependOnItAlone) {
  const cuda::RouterShape all{300, 24, 1544}, some{41, 24, 1544};
  const Value x = random_value(DType::bf16, {all.rows, all.hidden}, 1),
              weight = random_value(DType::bf16, {all.routes, all.hidden}, 2);
  const OnDevice on_x(x), on_weight(weight);
  const auto scores = [&](const cuda::RouterShape& s) {
    OnDevice logits(DType::f32, {s.rows, s.routes}), work(DType::f32, {cuda::router_workspace(s, 4) / 4});
    cuda::router<bf16>(on_x.as<bf16>(), on_weight.as<bf16>(), logits.as<float>(), s, work.as<float>(),
                       nullptr);
    return logits.value();
  };
  const Value of_all = scores(all), of_some = scores(some);
  for (std::size_t i = 0; i < of_some.size(); ++i) ASSERT_EQ(of_all[i], of_some[i]) << i;
}

}  // namespace
}  // namespace prun::test::experts_test
