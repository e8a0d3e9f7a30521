// States what kernels and exchanges take on a machine: measured (prun bench), or computed for those that were
// not.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "estimate/prices.hpp"
#include "prun/comm.hpp"
#include "prun/op.hpp"

namespace prun {

struct KernelKey {
  std::string op;  // name from kernel_name()
  DType type = DType::f32;
  std::string device;  // name, which states threads and instruction set: "cpu: 2 threads, avx512"

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;  // NOLINT: no null in it
};

// The model is seconds = fixed + per_flop x FLOPs + per_byte x bytes.
struct KernelFit {
  double fixed = 0, per_flop = 0, per_byte = 0;

  double seconds(const OpCost& cost) const { return fixed + per_flop * cost.flops + per_byte * cost.bytes; }
};

struct KernelSample {
  OpCost cost;
  double seconds = 0;
};

// Returns the three numbers, none negative, with the least sum of squared relative errors.
KernelFit fit_kernel(std::span<const KernelSample> samples);

// Returns the type a kernel computes in: that of its first floating-point operand.
DType element_type(const OpShape& shape);
// Says whether an op multiplies factors that it rounds to fp8 (prun/fp8_blocks.hpp).
bool multiplies_in_fp8(const OpDef& op, const OpShape& shape);
// Returns the op's kind; for one that multiplies in fp8, which takes another time, a name such as "linear in
// fp8".
std::string kernel_name(const OpDef& op, const OpShape& shape);
// Returns a text such as "linear(fp32[2048,256], fp32[768,256], -, fp32[2048,768])", and behind it the later
// attributes that are not at their fallback: ", window=512".
std::string shape_key(const OpDef& op, const OpShape& shape);

// Exchanges from and to any device's memory that is the host's have this name.
inline constexpr const char* host_exchanges = "host memory";

struct ExchangeKey {
  CommKind kind = CommKind::barrier;
  std::int64_t members = 2;
  std::string device = host_exchanges;
  bool between_hosts = false;  // some members are on other hosts

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const ExchangeKey&, const ExchangeKey&) = default;  // NOLINT: no null in it
};

struct ExchangePoint {
  std::int64_t bytes = 0;  // as exchange_bytes() counts
  double seconds = 0;
};

// Holds points by growing size. The curve is linear between two of them, constant before the first; beyond
// the last, the line through the last two goes on.
struct ExchangeCurve {
  std::vector<ExchangePoint> points;

  double seconds(std::int64_t bytes) const;
};

struct ExactKey {
  std::string device;
  std::string shape;  // text from shape_key()

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const ExactKey&, const ExactKey&) = default;  // NOLINT: no null in it
};

// Describes one exchange of a layout as it is, with what is computed beside it.
struct ExactExchange {
  std::string device, queue;  // of the exchanging ranks
  CommKind kind = CommKind::barrier;
  std::int64_t members = 2;
  std::int64_t bytes = 0;  // as exchange_bytes() counts

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the compiler compares with for a pointer.
  friend auto operator<=>(const ExactExchange&, const ExactExchange&) = default;  // NOLINT: no null in it
};
// Returns the key of an exchange: a receive counts as the send that it meets, and both as between two.
ExactExchange exact_exchange(const PlannedExchange& exchange, std::int64_t members, std::string device,
                             std::string_view queue);

struct ExchangeTime {
  double seconds = 0;   // time from the arrival of the last member
  double lateness = 0;  // mean time for which the members wait for the last one
};

// States what exchanges take among ranks, by the bytes that each of them sends: (n-1)/n of an exchange's
// size.
struct LinkRates {
  double bytes_per_second = 0;  // rate of a rank, each way; 0: unknown
  double latency = 0;           // latency of each round of an exchange
};

// States the rates of a device whose kernels were not measured here: a data sheet's figures, or measurements
// of others.
struct DeviceRates {
  std::string device;                          // part of its name: "NVIDIA H200"
  std::string short_name;                      // word in its name, in any case: "h200"; empty: none
  std::map<DType, double> flops_per_second;    // rates by type; see rate_of() for other types
  std::optional<double> fp8_flops_per_second;  // rate of products in blocks of fp8, without the casts
  std::map<std::string, double, std::less<>> share_of;  // share that an op reaches; others reach all
  double bytes_per_second = 0;                          // rate of its memory
  double fixed = 0;                                     // seconds of each kernel beside its rates
  std::optional<double> peak_flops;                     // rate by which MFU is counted
  std::optional<double> host_bytes_per_second;          // rate of its link to host memory, each way
  // These are the rates of the host's memory and of its drives, which all ranks of the host share.
  std::optional<double> host_memory_bytes_per_second, drive_bytes_per_second;
  // The device's kernels reach this share of their rate while it exchanges beside them, by a comm plugin that
  // enqueues.
  std::optional<double> beside_exchanges;
  LinkRates within, between;   // rates of exchanges on a host, and between hosts
  double least = 1, most = 1;  // range of times of a step, as factors of the prediction
  std::string source;          // source of these rates

  // Returns the FLOPs a second of a type: fp16 and bf16 stand for each other, any other type that the rates
  // do not name has the slowest of them.
  double rate_of(DType type) const;
  double seconds(const OpCost& cost, DType type) const;
  // Returns the time of a product in fp8, whose two factors are read and written as codes before; nothing if
  // it is unknown.
  std::optional<double> seconds_in_fp8(const OpDef& op, const OpShape& shape, const OpCost& cost) const;
  // Says whether a device of that name is one of these.
  bool is_of(std::string_view name) const;
};

// States the bytes a second of all drives of a tier.
struct DriveRates {
  double read = 0, write = 0;
};

struct CostTable {
  Machine machine;
  std::vector<DeviceRates> rates;  // rates; the first that a device's name fits is used
  // All cores together read and write so much in host memory; nothing means that it was not measured.
  std::optional<double> host_gb_per_second;
  // A recipe states these of its tiers, by device; they take precedence, and no file has them.
  std::map<std::string, DriveRates> stated_drives;
  std::map<std::string, Overheads> overheads;  // overheads by device
  std::map<KernelKey, KernelFit> kernels;
  std::map<ExactKey, double> exact;  // seconds of single kernels; they take precedence
  std::map<ExchangeKey, ExchangeCurve> exchanges;
  std::map<ExactExchange, ExchangeTime>
      exact_exchanges;  // exchanges of measured layouts; they take precedence

  // Merges a table: whatever `newer` has replaces the same here. What was measured of other recipes stays.
  void merge(const CostTable& newer);
  // Returns the same table without anything that was measured: rates alone.
  CostTable rates_alone() const;
  // Returns the same table with a tier on drives that takes no time.
  CostTable without_time_of_drives(std::string_view tier) const;
  // Says whether exchanges from and to that device's own memory were measured, on a host or between hosts;
  // otherwise the host's are used for them.
  bool has_exchanges_of(std::string_view device, bool between_hosts = false) const;
  // Says whether anything was measured on that device.
  bool has_kernels_of(std::string_view device) const;
  // Returns the rates of a device, or null if it has none.
  const DeviceRates* rates_of(std::string_view device) const;
  // Returns the same table with links between ranks that carry `times` as much.
  CostTable with_links(double times) const;
};

}  // namespace prun
