#include "optimizer/cuda.hpp"

#include <limits>
#include <memory>

#include "prun/split_master.hpp"
#include "square_sum.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::optimizer_test {
namespace {

using Optimizers = CudaTest;

constexpr double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, lr = 3e-2, clip = 0.3;
const std::vector<std::int64_t> lengths = {1, 63, 8192, 8193, 30'001, 4};

template <class T>
DType type_or_none() {
  if constexpr (std::is_void_v<T>)
    return DType::f32;
  else
    return dtype_of<T>();
}

// A parameter and what belongs to it, on both sides: gradient, and m and v or the momentum and nothing.
template <class Types>
struct Tensors {
  Value parameter, master, gradient, first, second;
  double decay, lr_scale;
  TensorElements numbers;
  std::unique_ptr<OnDevice> on_device[5];

  Tensors(std::int64_t n, std::int64_t offset, unsigned seed)
      : parameter(random_value(dtype_of<typename Types::Parameter>(), {n}, seed)),
        gradient(random_value(dtype_of<typename Types::Gradient>(), {n}, seed + 1)),
        first(random_value(dtype_of<typename Types::State>(), {n}, seed + 2)),
        second(random_value(dtype_of<typename Types::State>(), {n}, seed + 3)),
        decay(n % 2 ? 0.1 : 0),
        lr_scale(n == 63 ? 0.5 : 1) {
    for (std::size_t i = 0; i < second.size(); ++i) second.set(i, std::abs(second[i]));
    if (Types::has_master) make_master(n, seed);
    // Every other run of a larger tensor, or all of it.
    numbers = n == 30'001 ? TensorElements{seed, 0, n, 35, 70, 140, 3}
                          : TensorElements{seed, 0, n, (std::int64_t{1} << 33) - 64, n, n, 0};
    const Value* values[] = {&parameter, &master, &gradient, &first, &second};
    for (int i = 0; i < 5; ++i)
      if (i != 1 || Types::has_master) on_device[i] = std::make_unique<OnDevice>(*values[i], offset);
  }

  template <class E>
  E* device(int i) const {
    if constexpr (std::is_void_v<E>)
      return nullptr;
    else
      return on_device[i]->template as<E>();
  }

 private:
  void make_master(std::int64_t n, unsigned seed) {
    const Value whole =
        random_value(Types::split ? DType::f32 : type_or_none<typename Types::Master>(), {n}, seed);
    master = Types::split ? Value(DType::u16, {n}) : whole;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const auto number = static_cast<float>(whole[i]);
      if (parameter.dtype() == DType::bf16)
        parameter.tensor().template as<std::uint16_t>()[i] = rounded_half(number);
      else
        parameter.set(i, whole[i]);
      if (Types::split) master.set(i, low_half(number));
    }
  }
};

template <class Types>
std::vector<Tensors<Types>> tensors_of(const std::vector<std::int64_t>& sizes, std::int64_t offset) {
  std::vector<Tensors<Types>> all;
  unsigned seed = 1;
  for (std::int64_t n : sizes) all.emplace_back(n, offset, seed += 10);
  return all;
}

std::vector<Value> cpu_update(const char* op, std::vector<Value> operands, std::vector<Attr> attrs,
                              const TensorElements& numbers) {
  Call call{op, std::move(operands), std::move(attrs)};
  call.updates = {numbers};
  return run_on(cpu_kernels(), call, 2);
}

void expect_same(const Value& got, const Value& want, const std::string& what) {
  EXPECT_EQ(got.bytes(), want.bytes()) << what;
}

constexpr double run_seed = 0x1.8p40;

template <class Types>
void expect_adamw(const std::vector<std::int64_t>& sizes, std::int64_t offset, double step, double keep) {
  std::vector<Tensors<Types>> all = tensors_of<Types>(sizes, offset);
  std::vector<cuda::AdamTensor<Types>> list;
  for (const Tensors<Types>& t : all)
    list.push_back({t.template device<typename Types::Parameter>(0),
                    t.template device<typename Types::Master>(1),
                    t.template device<typename Types::Gradient>(2),
                    t.template device<typename Types::State>(3), t.template device<typename Types::State>(4),
                    static_cast<std::int64_t>(t.parameter.size()), t.decay, t.lr_scale, t.numbers});
  OnDevice rate(number(lr)), steps(number(step)), clips(number(clip)), keeps(number(keep)),
      seeds(number(run_seed));
  const cuda::AdamSettings settings = {beta1,
                                       beta2,
                                       eps,
                                       rate.as<double>(),
                                       steps.as<double>(),
                                       clips.as<double>(),
                                       keeps.as<double>(),
                                       seeds.as<double>()};
  cuda::adamw<Types>(list, settings, nullptr);
  for (Tensors<Types>& t : all) {
    SCOPED_TRACE(t.parameter.size());
    const std::vector<Value> want =
        cpu_update("adamw",
                   {t.parameter, t.master, t.gradient, t.first, t.second, number(lr), number(step),
                    number(clip), number(keep), number(run_seed)},
                   {{.f = beta1}, {.f = beta2}, {.f = eps}, {.f = t.decay}, {.f = t.lr_scale}}, t.numbers);
    expect_same(t.on_device[0]->value(), want[0], "parameter");
    if (Types::has_master) expect_same(t.on_device[1]->value(), want[1], "master");
    expect_same(t.on_device[3]->value(), want[3], "m");
    expect_same(t.on_device[4]->value(), want[4], "v");
  }
}

// Calls body<Types>(offset) for all types of updates, with pointers that are aligned and that are not.
template <class Body>
void for_updates(Body body) {
  const auto one = [&]<class Types>(Types) {
    for (std::int64_t offset : {0, 1}) {
      SCOPED_TRACE(std::string(name_of(dtype_of<typename Types::Parameter>())) + ", master " +
                   (Types::has_master ? name_of(type_or_none<typename Types::Master>()) : "none") +
                   ", gradient " + name_of(dtype_of<typename Types::Gradient>()) + ", states " +
                   name_of(dtype_of<typename Types::State>()) + (offset ? ", not aligned" : ""));
      body.template operator()<Types>(offset);
    }
  };
  const auto halves = [&]<class Gradient, class State>(Gradient, State) {
    one(UpdateTypes<bf16, void, Gradient, State>());
    one(UpdateTypes<bf16, float, Gradient, State>());
    one(UpdateTypes<bf16, std::uint16_t, Gradient, State>());
  };
  one(UpdateTypes<double, void, double, double>());
  one(UpdateTypes<float, double, double, double>());
  one(UpdateTypes<bf16, double, double, double>());
  one(UpdateTypes<f16, double, double, double>());
  one(UpdateTypes<f16, float, float, float>());
  one(UpdateTypes<f16, float, float, bf16>());
  one(UpdateTypes<float, void, float, float>());
  one(UpdateTypes<float, void, float, bf16>());
  halves(float{}, float{});
  halves(float{}, bf16{});
  halves(bf16{}, float{});
  halves(bf16{}, bf16{});
}

using WholeMaster = UpdateTypes<bf16, float, float, float>;

TEST_F(Optimizers, AdamWHasTheBitsOfTheCpu) {
  for_updates([]<class Types>(std::int64_t offset) {
    for (double step : {1.0, 123456.0}) expect_adamw<Types>(lengths, offset, step, 1);
  });
}

TEST_F(Optimizers, ManyTensorsTakeSeveralLaunches) {
  expect_adamw<WholeMaster>(std::vector<std::int64_t>(1000, 5), 0, 3, 1);
}

TEST_F(Optimizers, KeepZeroWritesNothing) { expect_adamw<WholeMaster>(lengths, 0, 3, 0); }

template <class Types>
void expect_sgd(bool momentum, std::int64_t offset) {
  std::vector<Tensors<Types>> all = tensors_of<Types>(lengths, offset);
  std::vector<cuda::SgdTensor<Types>> list;
  for (const Tensors<Types>& t : all)
    list.push_back({t.template device<typename Types::Parameter>(0),
                    t.template device<typename Types::Master>(1),
                    t.template device<typename Types::Gradient>(2),
                    momentum ? t.template device<typename Types::State>(3) : nullptr,
                    static_cast<std::int64_t>(t.parameter.size()), t.decay, t.lr_scale, t.numbers});
  OnDevice rate(number(lr)), clips(number(clip)), keeps(number(1)), steps(number(9)), seeds(number(run_seed));
  cuda::sgd<Types>(list,
                   {momentum ? 0.9 : 0, rate.as<double>(), clips.as<double>(), keeps.as<double>(),
                    steps.as<double>(), seeds.as<double>()},
                   nullptr);
  for (Tensors<Types>& t : all) {
    SCOPED_TRACE(t.parameter.size());
    const std::vector<Value> want =
        cpu_update("sgd",
                   {t.parameter, t.master, t.gradient, momentum ? t.first : Value(), number(lr), number(clip),
                    number(1), number(9), number(run_seed)},
                   {{.f = momentum ? 0.9 : 0}, {.f = t.decay}, {.f = t.lr_scale}}, t.numbers);
    expect_same(t.on_device[0]->value(), want[0], "parameter");
    if (Types::has_master) expect_same(t.on_device[1]->value(), want[1], "master");
    if (momentum) expect_same(t.on_device[3]->value(), want[3], "momentum");
  }
}

TEST_F(Optimizers, SgdHasTheBitsOfTheCpu) {
  for_updates([]<class Types>(std::int64_t offset) {
    for (bool momentum : {false, true}) expect_sgd<Types>(momentum, offset);
  });
}

template <class Types>
void expect_average(std::int64_t offset, double step, double keep) {
  using C = typename Types::C;
  std::vector<Tensors<Types>> all = tensors_of<Types>(lengths, offset);
  std::vector<std::unique_ptr<OnDevice>> averages;
  std::vector<cuda::AveragedTensor<Types>> list;
  for (const Tensors<Types>& t : all) {
    averages.push_back(std::make_unique<OnDevice>(
        random_value(dtype_of<C>(), {static_cast<std::int64_t>(t.parameter.size())}, 9), offset));
    list.push_back({t.template device<typename Types::Parameter>(0),
                    t.template device<typename Types::Master>(1), averages.back()->template as<C>(),
                    static_cast<std::int64_t>(t.parameter.size())});
  }
  OnDevice steps(number(step)), keeps(number(keep));
  cuda::average_weights<Types>(list, 0.99, steps.as<double>(), keeps.as<double>(), nullptr);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Tensors<Types>& t = all[i];
    SCOPED_TRACE(t.parameter.size());
    const Value before = random_value(dtype_of<C>(), {static_cast<std::int64_t>(t.parameter.size())}, 9);
    const std::vector<Value> want =
        cpu_update("average_weights", {t.parameter, t.master, before, number(step), number(keep)},
                   {{.f = 0.99}}, t.numbers);
    expect_same(averages[i]->value(), want[2], "average");
    if (keep == 0) expect_same(want[2], before, "average, of a step that is not kept");
  }
}

TEST_F(Optimizers, AveragesHaveTheBitsOfTheCpu) {
  for_updates([]<class Types>(std::int64_t offset) {
    // Types of gradients and moments are nothing to it.
    if constexpr (std::is_same_v<typename Types::Gradient, typename Types::C> &&
                  std::is_same_v<typename Types::State, typename Types::C>)
      for (double step : {1.0, 123456.0}) expect_average<Types>(offset, step, 1);
  });
  expect_average<WholeMaster>(0, 3, 0);
}

TEST_F(Optimizers, SumOfSquaresOverAllTensors) {
  for_types([]<class T>(std::int64_t offset) {
    std::vector<std::unique_ptr<OnDevice>> memory;
    std::vector<cuda::Values<T>> list;
    Value want = number(2.5);
    for (std::int64_t n : {1, 4095, 8192, 50'001, 300'000}) {
      const Value x = random_value(dtype_of<T>(), {n}, static_cast<unsigned>(n));
      memory.push_back(std::make_unique<OnDevice>(x, offset));
      list.push_back({memory.back()->template as<T>(), n});
      want = cpu("sum_squares", {x, want})[1];
    }
    OnDevice sum(number(2.5));
    {
      const DeviceWorkspace workspace(cuda::sum_squares_workspace());
      cuda::sum_squares<T>(list, sum.as<double>(), workspace.data(), nullptr);
    }
    expect_same(sum.value(), want, "sum");
  });
}

// Of the longer one parts have several rows.
TEST_F(Optimizers, SumOfSquaresOfLongTensorsHasTheBitsOfTheCpu) {
  constexpr std::int64_t rows = square_sum::most_parts + 3;
  const Value x = random_value(DType::bf16, {rows * square_sum::row_elements - 5}, 1);
  OnDevice values(x), sum(number(2.5));
  const std::vector<cuda::Values<bf16>> list(9, {values.as<bf16>(), static_cast<std::int64_t>(x.size())});
  Value want = number(2.5);
  for (std::size_t i = 0; i < list.size(); ++i) want = cpu("sum_squares", {x, want})[1];
  const DeviceWorkspace workspace(cuda::sum_squares_workspace());
  cuda::sum_squares<bf16>(list, sum.as<double>(), workspace.data(), nullptr);
  expect_same(sum.value(), want, "sum");
}

TEST_F(Optimizers, SumOfSquaresShowsWhatIsNotFinite) {
  for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    Value x = random_value(DType::f32, {50'000}, 1);
    x.set(49'999, bad);
    OnDevice values(x), sum(number(0));
    const DeviceWorkspace workspace(cuda::sum_squares_workspace());
    const std::vector<cuda::Values<float>> list = {{values.as<float>(), 50'000}};
    cuda::sum_squares<float>(list, sum.as<double>(), workspace.data(), nullptr);
    EXPECT_FALSE(std::isfinite(sum.value()[0]));
  }
}

TEST_F(Optimizers, WhatIsNotFiniteIsCountedWhereTheUpdateIsMasked) {
  for_types([]<class T>(std::int64_t offset) {
    std::vector<std::unique_ptr<OnDevice>> memory;
    std::vector<cuda::CountedValues<T>> list;
    OnDevice counts(Value(DType::f64, {4}, {10, 20, 30, 40}));
    for (std::int64_t n : {1, 8193, 50'001, 300'000}) {
      Value x = random_value(dtype_of<T>(), {n}, static_cast<unsigned>(n));
      const auto last = static_cast<std::size_t>(n - 1);
      if (n != 50'001) x.set(last, std::nan(""));
      if (n == 300'000)
        for (std::size_t i : {0u, 8191u, 8192u, 200'000u}) x.set(i, std::numeric_limits<double>::infinity());
      memory.push_back(std::make_unique<OnDevice>(x, offset));
      list.push_back({memory.back()->template as<T>(), n, counts.as<double>() + list.size()});
    }
    OnDevice kept(number(1)), masked(number(0));
    cuda::count_non_finite<T>(list, kept.as<double>(), nullptr);
    EXPECT_EQ(counts.value().numbers(), (std::vector<double>{10, 20, 30, 40}));
    cuda::count_non_finite<T>(list, masked.as<double>(), nullptr);
    EXPECT_EQ(counts.value().numbers(), (std::vector<double>{11, 21, 30, 45}));
  });
}

TEST_F(Optimizers, ClipFactorDecidesAsTheCpu) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (double square : {0.0, 16.0, infinity, std::nan("")})
    for (double loss : {1.0, infinity})
      for (double halt : {0.0, 1.0})
        for (double limit : {0.0, 1.0, 4.0})
          for (bool scaled : {false, true}) {
            const std::vector<Value> want = cpu("clip_factor",
                                                {number(square), number(loss), number(halt), number(-1),
                                                 number(-1), number(-1), scaled ? number(0.25) : Value()},
                                                {{.f = limit}});
            OnDevice sums(number(square)), losses(number(loss)), halts(number(halt)), norm(number(-1)),
                factor(number(-1)), keep(number(-1)), scales(number(0.25));
            cuda::clip_factor(
                {sums.as<double>(), losses.as<double>(), halts.as<double>(), norm.as<double>(),
                 factor.as<double>(), keep.as<double>(), scaled ? scales.as<double>() : nullptr},
                limit, nullptr);
            if (!std::isnan(square)) {
              EXPECT_EQ(norm.value()[0], want[3][0]);
            }
            EXPECT_EQ(factor.value()[0], want[4][0]);
            EXPECT_EQ(keep.value()[0], want[5][0]);
          }
}

}  // namespace
}  // namespace prun::test::optimizer_test
