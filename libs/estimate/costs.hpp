// Cost table: seconds of kernels, collectives and copies on a machine. Entries are measured (prun bench) or
// follow from rates, such as a data sheet's. Example: for `linear` in bf16 on an H200 a KernelFit may have
// fixed = 4 µs, per_flop = 1.4e-15 s; a shape measured exactly is in `exact`, which takes precedence. An
// all-reduce among 8 ranks is a curve of seconds by bytes.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "estimate/cost_model.hpp"
#include "program/step_program.hpp"
#include "prun/comm.hpp"
#include "prun/op.hpp"

namespace prun {

struct KernelKey {
  std::string op;  // from kernel_name()
  DType type = DType::f32;
  std::string device;  // with threads and instruction set: "cpu: 2 threads, avx512"

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;  // NOLINT: no null in it
};

// seconds = fixed + per_flop x FLOPs + per_byte x bytes
struct KernelFit {
  double fixed = 0, per_flop = 0, per_byte = 0;

  double seconds(const OpCost& cost) const { return fixed + per_flop * cost.flops + per_byte * cost.bytes; }
};

struct KernelSample {
  OpCost cost;
  double seconds = 0;
};

// Fits three non-negative numbers with the least sum of squared relative errors.
KernelFit fit_kernel(std::span<const KernelSample> samples);

// Returns the type of the first floating-point operand.
DType element_type(const OpShape& shape);
// Returns true if the op rounds its factors to fp8 (prun/fp8_blocks.hpp).
bool multiplies_in_fp8(const OpDef& op, const OpShape& shape);
// Returns the share of the layers of its segment in which an op does so.
double layers_in_fp8(const Program& program, Id op);
// Returns the share of FLOPs done in fp8, among those of all ops that can multiply so.
double share_in_fp8(const Program& program);
// Returns the op's kind. For products in fp8, which take another time, a name such as "linear in fp8".
std::string kernel_name(const OpDef& op, const OpShape& shape);
// Returns a text such as "linear(fp32[2048,256], fp32[768,256], -, fp32[2048,768])", with attributes added
// later if they are not at their default: ", window=512".
std::string shape_key(const OpDef& op, const OpShape& shape);

// The device's name for collectives in host memory.
inline constexpr const char* host_exchanges = "host memory";

struct ExchangeKey {
  CommKind kind = CommKind::barrier;
  std::int64_t members = 2;
  std::string device = host_exchanges;
  bool between_hosts = false;  // members are on several hosts

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const ExchangeKey&, const ExchangeKey&) = default;  // NOLINT: no null in it
};

struct ExchangePoint {
  std::int64_t bytes = 0;  // see exchange_bytes()
  double seconds = 0;
};

// Points in order of size. The curve is linear between points, constant before the first, and extrapolates
// the line through the last two.
struct ExchangeCurve {
  std::vector<ExchangePoint> points;

  double seconds(std::int64_t bytes) const;
};

struct ExactKey {
  std::string device;
  std::string shape;  // from shape_key()

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const ExactKey&, const ExactKey&) = default;  // NOLINT: no null in it
};

// One collective of a measured layout, with the kernels that run concurrently.
struct ExactExchange {
  std::string device, queue;  // of its ranks
  CommKind kind = CommKind::barrier;
  std::int64_t members = 2;
  std::int64_t bytes = 0;  // see exchange_bytes()

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const ExactExchange&, const ExactExchange&) = default;  // NOLINT: no null in it
};
// A receive has the key of its send, among two members.
ExactExchange exact_exchange(const PlannedExchange& exchange, std::int64_t members, std::string device,
                             std::string_view queue);

struct ExchangeTime {
  double seconds = 0;   // from the arrival of the last member
  double lateness = 0;  // mean wait of members for the last one
};

// Rates of links between ranks, for the bytes that each rank sends: (n-1)/n of a collective's size.
struct LinkRates {
  double bytes_per_second = 0;  // per rank and direction; 0: unknown
  double latency = 0;           // of each round of a collective
};

// Rates of a device whose kernels were not measured here: from a data sheet or from another machine's
// measurements.
struct DeviceRates {
  std::string device;                                   // part of its name: "NVIDIA H200"
  std::string short_name;                               // a word of its name, such as "h200"; may be empty
  std::map<DType, double> flops_per_second;             // see rate_of() for other types
  std::optional<double> fp8_flops_per_second;           // of fp8 products, without casts
  std::map<std::string, double, std::less<>> share_of;  // share of the rate that an op reaches, if not all
  double bytes_per_second = 0;                          // of its memory
  double fixed = 0;                                     // seconds added to each kernel
  std::optional<double> peak_flops;                     // for MFU
  std::optional<double> host_bytes_per_second;          // of its link to the host, each way
  // Shared by all ranks of the host.
  std::optional<double> host_memory_bytes_per_second, drive_bytes_per_second;
  // Share of their rate that kernels reach while a comm plugin that enqueues communicates.
  std::optional<double> beside_exchanges;
  LinkRates within, between;   // on a host, between hosts
  double least = 1, most = 1;  // range of a step's time, as factors of the prediction
  std::string source;          // where the rates come from

  // Returns FLOPs a second. fp16 and bf16 stand for each other; other types without a rate have the slowest
  // one.
  double rate_of(DType type) const;
  double seconds(const OpCost& cost, DType type) const;
  // Returns the seconds of a product in fp8, including the casts of its factors; nothing if unknown.
  std::optional<double> seconds_in_fp8(const OpDef& op, const OpShape& shape, const OpCost& cost) const;
  bool is_of(std::string_view name) const;
};

// Bytes a second of all drives of a tier together.
struct DriveRates {
  double read = 0, write = 0;
};

struct CostTable {
  Machine machine;
  std::vector<DeviceRates> rates;  // the first that fits a device's name is used
  // Reads and writes of all cores together; nothing if it was not measured.
  std::optional<double> host_gb_per_second;
  // From the recipe, by device. They take precedence, and are in no file.
  std::map<std::string, DriveRates> stated_drives;
  std::map<std::string, Overheads> overheads;  // by device
  std::map<KernelKey, KernelFit> kernels;
  std::map<ExactKey, double> exact;  // seconds of single kernels; these take precedence
  std::map<ExchangeKey, ExchangeCurve> exchanges;
  std::map<ExactExchange, ExchangeTime>
      exact_exchanges;  // collectives of measured layouts; these take precedence

  // Entries of `newer` replace those with the same key.
  void merge(const CostTable& newer);
  // Returns the table without measurements.
  CostTable rates_alone() const;
  // Returns the table with a tier whose drives take no time.
  CostTable without_time_of_drives(std::string_view tier) const;
  // Returns true if collectives in that device's memory were measured. Otherwise those of host memory are
  // used.
  bool has_exchanges_of(std::string_view device, bool between_hosts = false) const;
  bool has_kernels_of(std::string_view device) const;
  // Returns null if there are none.
  const DeviceRates* rates_of(std::string_view device) const;
  // Returns the table with links that carry `times` as much.
  CostTable with_links(double times) const;
};

}  // namespace prun
