// Times AdamW on the device `cpu`, alone and where it keeps the old state beside, beside the bandwidth of the
// machine's memory: it prints billions of parameters a second, the bytes that they move, and their share of a
// triad (a = b + s c) in the same run: the better of one whose stores read nothing first, 12 bytes each, and
// one by ordinary stores, whose lines are read: 16.
//
//   cpu_adamw [THREADS [MILLIONS]]
//
// Threads: all cores that the process may use; millions of parameters: 64.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "prun/eight_bits.hpp"
#include "prun/ops/optimizer.hpp"
#include "support/assembly_fixture.hpp"
#include "support/test_workers.hpp"

namespace {

using namespace prun;

constexpr int repeats = 9;

// Allocates memory as a plan does.
class Memory {
 public:
  Memory(DeviceInterface& device, std::int64_t bytes) : device_(device), bytes_(bytes) {
    raise(device.allocate(Space::device, bytes, &data_));
  }
  ~Memory() { device_.release(Space::device, data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }

 private:
  DeviceInterface& device_;
  std::int64_t bytes_;
  void* data_ = nullptr;
};

// Returns the time of the fastest of some runs: other programs only slow them down.
template <class Body>
double seconds_of(Body&& body) {
  using Clock = std::chrono::steady_clock;
  double least = std::numeric_limits<double>::max();
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const auto begin = Clock::now();
    body();
    if (repeat > 0) least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return least;
}

void add_scaled(float* a, const float* b, const float* c, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) a[i] = b[i] + 3 * c[i];
}

void add_scaled_past_caches(float* a, const float* b, const float* c, std::int64_t n) {
#ifdef __SSE2__
  const __m128 factor = _mm_set1_ps(3);
  for (std::int64_t i = 0; i < n; i += 4)
    _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(factor, _mm_load_ps(c + i))));
  _mm_sfence();
#else
  add_scaled(a, b, c, n);
#endif
}

// Returns bytes a second.
double triad(DeviceInterface& device, const Workers& workers, std::int64_t elements) {
  const std::int64_t bytes = elements * size_of(DType::f32);
  const Memory a(device, bytes), b(device, bytes), c(device, bytes);
  const auto seconds = [&](auto add) {
    return seconds_of([&] {
      parallel_ranges(workers, elements, 4096, [&](std::int64_t begin, std::int64_t end) {
        add(static_cast<float*>(a.data()) + begin, static_cast<const float*>(b.data()) + begin,
            static_cast<const float*>(c.data()) + begin, end - begin);
      });
    });
  };
  return static_cast<double>(bytes) * std::max(3 / seconds(add_scaled_past_caches), 4 / seconds(add_scaled));
}

struct Format {
  const char* name;
  DType parameter;
  std::optional<DType> master;
  DType gradient, moments;

  bool in_blocks() const { return moments == DType::u8; }
};

// Counts how often each of the state is read or written.
double times_moved(bool keeps) { return keeps ? 3 : 2; }

double bytes_each(const Format& format, bool keeps) {
  const double weights = static_cast<double>(size_of(format.parameter)) +
                         (format.master ? static_cast<double>(size_of(*format.master)) : 0.0);
  const double scale = format.in_blocks() ? 4.0 / static_cast<double>(eight_bit_block) : 0.0;
  return times_moved(keeps) * (weights + 2 * (static_cast<double>(size_of(format.moments)) + scale)) +
         static_cast<double>(size_of(format.gradient));
}

// `rate` is parameters a second.
void report(const Format& format, bool keeps, double rate, double triad_rate) {
  const double bytes = bytes_each(format, keeps);
  std::printf("%-34s %7.3f Gparam/s %5.0f B each %7.1f GB/s %6.1f %% of triad\n",
              (format.name + std::string(keeps ? ", old kept" : "")).c_str(), rate / 1e9, bytes,
              rate * bytes / 1e9, 100 * rate * bytes / triad_rate);
}

// Returns the type of an operand of the update, in `elements` or blocks of them; none: it is absent.
std::optional<DType> type_of(const Format& format, std::string_view operand) {
  if (operand.starts_with("old_")) operand.remove_prefix(4);
  if (operand == "parameter") return format.parameter;
  if (operand == "master") return format.master;
  if (operand == "gradient") return format.gradient;
  if (operand == "m" || operand == "v") return format.moments;
  if (operand.ends_with("_scale")) return format.in_blocks() ? std::optional(DType::f32) : std::nullopt;
  return DType::f64;
}

double number_in(std::string_view operand) {
  return operand == "lr" ? 1e-3 : operand == "step" ? 10 : operand == "seed" ? 42 : 1;
}

template <class Op>
void measure(DeviceInterface& device, const Workers& workers, const Format& format, std::int64_t elements,
             double triad_rate) {
  const std::vector<Attr> attrs = {{.f = 0.9}, {.f = 0.95}, {.f = 1e-8}, {.f = 0.1}, {.f = 1.0}};
  OpShape shape;
  shape.attrs = attrs.data();
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<Tensor> tensors;
  for (const OperandDef& operand : Op::operands) {
    const std::string_view name = operand.name;
    const int i = shape.count++;
    Tensor& tensor = tensors.emplace_back();
    const std::optional<DType> type = type_of(format, name);
    if (!type) continue;
    const bool is_scalar = *type == DType::f64;
    const Dim all{"elements", name.ends_with("_scale") ? elements / eight_bit_block : elements};
    shape.output(i, *type, &all, is_scalar ? 0 : 1);
    memory.push_back(std::make_unique<Memory>(device, shape.operand[i].elements() * size_of(*type)));
    tensor.data = memory.back()->data();
    tensor.dtype = *type;
    tensor.rank = shape.operand[i].rank;
    tensor.dim[0] = all.extent;
    if (is_scalar) *static_cast<double*>(tensor.data) = number_in(name);
  }
  const Kernel kernel = device.kernel(Op::kind)->select(shape);
  PRUN_CHECK(kernel, "no kernel for ", format.name);
  const TensorElements whole{1, 0, elements, 0, elements, elements, 0};
  KernelArgs args;
  args.operands = tensors.data();
  args.attrs = attrs.data();
  args.operand_count = shape.count;
  args.updates = &whole;
  args.update_count = 1;
  const KernelContext context{&workers, nullptr};
  const double rate = static_cast<double>(elements) / seconds_of([&] { kernel(args, context); });
  report(format, std::is_same_v<Op, ops::AdamWKeepingOld>, rate, triad_rate);
}

constexpr Format formats[] = {
    {"fp32", DType::f32, {}, DType::f32, DType::f32},
    {"bf16, fp32 master", DType::bf16, DType::f32, DType::f32, DType::f32},
    {"bf16, split master", DType::bf16, DType::u16, DType::f32, DType::f32},
    {"bf16, split master, bf16 gradient", DType::bf16, DType::u16, DType::bf16, DType::f32},
    {"bf16, split master, bf16 moments", DType::bf16, DType::u16, DType::f32, DType::bf16},
    {"bf16, split master, 8-bit moments", DType::bf16, DType::u16, DType::f32, DType::u8},
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const int threads = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
    const std::int64_t elements = (argc > 2 ? std::atoll(argv[2]) : 64) << 20;
    const auto device = test::cpu_device(threads);
    DeviceInfo info;
    raise(device->info(&info));
    test::TestWorkers pool(threads);
    const Workers workers = pool.workers();
    const double rate = triad(*device, workers, elements);
    std::printf("%.*s, %lld million parameters: triad %.1f GB/s\n", static_cast<int>(info.name.size),
                info.name.data, static_cast<long long>(elements >> 20), rate / 1e9);
    for (const Format& format : formats) {
      measure<ops::AdamW>(*device, workers, format, elements, rate);
      if (!format.in_blocks()) measure<ops::AdamWKeepingOld>(*device, workers, format, elements, rate);
    }
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
