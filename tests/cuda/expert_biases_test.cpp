// Experts with biases in front of bounded activations and behind them, and a router's bias.
#include "experts/cuda_biases.hpp"

#include "experts/cuda.hpp"
#include "router/cuda_bias.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::expert_biases_test {
namespace {

using ExpertBiases = CudaTest;

// An expert without rows, one with many, and choices of others' experts.
struct Problem {
  std::int64_t batch, seq, choices, experts, first, own, hidden, ffn;
  double limit;

  cuda::ExpertsShape shape() const { return {batch * seq, choices, own, first, hidden, ffn}; }
  cuda::ExpertBiasesShape biases() const { return {batch * seq, choices, own, first, hidden}; }
  std::vector<Attr> attrs() const { return {{.i = experts}, {.f = limit}, {.f = 1.7}}; }
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
    {2, 23, 2, 5, 0, 5, 40, 24, 0.8}, {1, 35, 3, 6, 2, 3, 70, 33, 0.5}, {1, 20, 2, 4, 0, 4, 16, 8, 0}};

template <class T>
double bound() {
  return std::is_same_v<T, double> ? 1e-12 : std::is_same_v<T, float> ? 2e-5 : 6e-2;
}

// Near a limit a gradient is all or nothing, as 16 bits round: there nothing comes near it.
template <class T>
Problem out_of_reach(Problem p) {
  if (sizeof(T) == 2 && p.limit > 0) p.limit = 50;
  return p;
}

template <class T>
struct Case {
  static constexpr DType type = dtype_of<T>(), scores = dtype_of<cuda::Compute<T>>();
  const Problem& p;
  Value x, index, weight, up, down, up_bias, bias, dy;

  explicit Case(const Problem& problem)
      : p(problem),
        x(random_value(type, {p.batch, p.seq, p.hidden}, 1)),
        index(p.index()),
        weight(random_value(scores, {p.batch, p.seq, p.choices}, 2)),
        up(random_value(type, {p.own, 2, p.ffn, p.hidden}, 3, 0.5)),
        down(random_value(type, {p.own, p.hidden, p.ffn}, 4, 0.5)),
        up_bias(random_value(type, {p.own, 2, p.ffn}, 5)),
        bias(random_value(type, {p.own, p.hidden}, 6)),
        dy(random_value(type, {p.batch, p.seq, p.hidden}, 7)) {}
};

TEST_F(ExpertBiases, InFrontOfActivationsAreThoseOfTheCpu) {
  for (const Problem& p : problems)
    for_types([&]<class T>(std::int64_t offset) {
      const Case<T> c(p);
      const Value want =
          cpu("biased_experts", {c.x, c.index, c.weight, c.up, c.down, c.up_bias, Value(c.type, c.x.dims())},
              p.attrs(), {{3, 0, p.first}})[6];
      const OnDevice x(c.x, offset), index(c.index), weight(c.weight), up(c.up, offset), down(c.down, offset),
          up_bias(c.up_bias, offset);
      OnDevice y(c.type, c.x.dims(), offset);
      const DeviceWorkspace room(cuda::experts_workspace(p.shape(), sizeof(T), false, false));
      cuda::experts<T>({.x = x.as<T>(),
                        .index = index.as<std::int32_t>(),
                        .weight = weight.as<cuda::Compute<T>>(),
                        .up = up.as<T>(),
                        .down = down.as<T>(),
                        .up_bias = up_bias.as<T>(),
                        .limit = p.limit,
                        .alpha = 1.7},
                       y.as<T>(), p.shape(), room.data(), nullptr);
      expect_close(y.value(), want.numbers(), bound<T>(), "y");
    });
}

TEST_F(ExpertBiases, GradientsInFrontOfActivationsAreThoseOfTheCpu) {
  for (const Problem& problem : problems)
    for_sums([&]<class T, class S>(std::int64_t offset) {
      const Problem p = out_of_reach<T>(problem);
      const Case<T> c(p);
      const DType sums = dtype_of<S>();
      for (const bool begins : {true, false}) {
        const Value dup = random_value(sums, c.up.dims(), 8), ddown = random_value(sums, c.down.dims(), 9),
                    dbias = random_value(sums, c.up_bias.dims(), 10);
        const std::vector<Start> starts = {{3, 0, p.first}};
        const std::vector<Value> given = cpu("biased_experts_grad",
                                             {c.x, c.index, c.weight, c.up, c.down, c.up_bias, c.dy,
                                              Value(c.type, c.x.dims()), Value(c.scores, c.weight.dims())},
                                             p.attrs(), starts),
                                 added = cpu_sums("biased_experts_weight_grad",
                                                  {c.x, c.index, c.weight, c.up, c.down, c.up_bias, c.dy,
                                                   begins ? zeros(dup) : dup, begins ? zeros(ddown) : ddown,
                                                   begins ? zeros(dbias) : dbias},
                                                  {7, 8, 9}, p.attrs(), starts);
        const OnDevice x(c.x, offset), index(c.index), weight(c.weight), up(c.up, offset),
            down(c.down, offset), up_bias(c.up_bias, offset), dy(c.dy, offset);
        OnDevice dx(c.type, c.x.dims(), offset), dweight(c.scores, c.weight.dims()),
            to_up(begins ? poison(dup) : dup), to_down(begins ? poison(ddown) : ddown),
            to_bias(begins ? poison(dbias) : dbias);
        const DeviceWorkspace room(cuda::experts_workspace(p.shape(), sizeof(T), true, false));
        cuda::experts_grads<T, S>({.x = x.as<T>(),
                                   .index = index.as<std::int32_t>(),
                                   .weight = weight.as<cuda::Compute<T>>(),
                                   .up = up.as<T>(),
                                   .down = down.as<T>(),
                                   .up_bias = up_bias.as<T>(),
                                   .limit = p.limit,
                                   .alpha = 1.7},
                                  dy.as<T>(),
                                  {dx.as<T>(),
                                   dweight.as<cuda::Compute<T>>(),
                                   {to_up.as<S>(), begins},
                                   {to_down.as<S>(), begins},
                                   {to_bias.as<S>(), begins}},
                                  p.shape(), room.data(), nullptr);
        expect_close(dx.value(), given[7].numbers(), bound<T>(), "dx");
        expect_close(dweight.value(), given[8].numbers(), bound<T>(), "dweight");
        expect_close(to_up.value(), added[7].numbers(), 2 * bound<T>(), "dup");
        expect_close(to_down.value(), added[8].numbers(), 2 * bound<T>(), "ddown");
        expect_close(to_bias.value(), added[9].numbers(), 2 * bound<T>(), "dup_bias");
      }
    });
}

TEST_F(ExpertBiases, BehindExpertsAreThoseOfTheCpu) {
  for (const Problem& p : problems)
    for_sums([&]<class T, class S>(std::int64_t offset) {
      using C = cuda::Compute<T>;
      const Case<T> c(p);
      const std::vector<Start> starts = {{2, 0, p.first}};
      const OnDevice index(c.index), weight(c.weight), bias(c.bias, offset), dy(c.dy, offset);
      OnDevice y(c.type, c.x.dims(), offset), dweight(c.scores, c.weight.dims());
      cuda::expert_biases<T>(index.as<std::int32_t>(), weight.as<C>(), bias.as<T>(), y.as<T>(), p.biases(),
                             nullptr);
      expect_close(y.value(),
                   cpu("expert_biases", {c.index, c.weight, c.bias, Value(c.type, c.x.dims())}, {}, starts)[3]
                       .numbers(),
                   tolerance(c.type), "y");
      cuda::expert_biases_grad<T>(index.as<std::int32_t>(), bias.as<T>(), dy.as<T>(), dweight.as<C>(),
                                  p.biases(), nullptr);
      expect_close(dweight.value(),
                   cpu("expert_biases_grad",
                       {c.index, c.weight, c.bias, c.dy, Value(c.scores, c.weight.dims())}, {}, starts)[4]
                       .numbers(),
                   bound<T>(), "dweight");
      for (const bool begins : {true, false}) {
        const Value dbias = random_value(dtype_of<S>(), c.bias.dims(), 11);
        OnDevice sum(begins ? poison(dbias) : dbias);
        cuda::expert_biases_weight_grad<T, S>(index.as<std::int32_t>(), weight.as<C>(), dy.as<T>(),
                                              {sum.as<S>(), begins}, p.biases(), nullptr);
        expect_close(
            sum.value(),
            cpu_sums("expert_biases_weight_grad",
                     {c.index, c.weight, c.bias, c.dy, begins ? zeros(dbias) : dbias}, {4}, {}, starts)[4]
                .numbers(),
            2 * bound<T>(), "dbias");
      }
    });
}

TEST_F(ExpertBiases, OfARouterAreAddedToItsScores) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>(), scores = dtype_of<cuda::Compute<T>>();
    const Value bias = random_value(type, {37}, 1), before = random_value(scores, {19, 37}, 2);
    const OnDevice by(bias, offset);
    OnDevice to(before);
    cuda::add_router_bias<T>(by.as<T>(), to.as<cuda::Compute<T>>(), 19, 37, nullptr);
    std::vector<double> want = before.numbers();
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += bias[i % 37];
    expect_close(to.value(), want, tolerance(scores), "scores");
  });
}

}  // namespace
}  // namespace prun::test::expert_biases_test
