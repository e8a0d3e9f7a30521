#include "estimate/costs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>

#include "estimate/moved_bytes.hpp"

namespace prun {
namespace {

// ---------------------------------------------------------------- fitting

constexpr std::size_t terms = 3;
using Row = std::array<double, terms>;

// Solves least squares of rows x = 1 over the chosen terms; nothing if the rows do not determine them.
std::optional<Row> solve(const std::vector<Row>& rows, unsigned chosen) {
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < terms; ++i)
    if (chosen >> i & 1u) used.push_back(i);
  const std::size_t n = used.size();
  double m[terms][terms + 1] = {};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) m[i][j] += row[used[i]] * row[used[j]];
      m[i][n] += row[used[i]];
    }
  Row diagonal{};
  for (std::size_t i = 0; i < n; ++i) diagonal[i] = m[i][i];
  for (std::size_t i = 0; i < n; ++i) {
    if (m[i][i] <= 1e-9 * diagonal[i]) return {};
    for (std::size_t below = i + 1; below < n; ++below) {
      const double factor = m[below][i] / m[i][i];
      for (std::size_t j = i; j <= n; ++j) m[below][j] -= factor * m[i][j];
    }
  }
  Row x{};
  for (std::size_t i = n; i-- > 0;) {
    double value = m[i][n];
    for (std::size_t j = i + 1; j < n; ++j) value -= m[i][j] * x[used[j]];
    x[used[i]] = value / m[i][i];
  }
  return x;
}

double squared_error(const std::vector<Row>& rows, const Row& x) {
  double sum = 0;
  for (const Row& row : rows) {
    const double off = row[0] * x[0] + row[1] * x[1] + row[2] * x[2] - 1;
    sum += off * off;
  }
  return sum;
}

bool any_negative(const Row& x) {
  return std::any_of(x.begin(), x.end(), [](double v) { return v < 0; });
}

}  // namespace

KernelFit fit_kernel(std::span<const KernelSample> samples) {
  Row scale = {1, 1, 1};
  for (const KernelSample& sample : samples) {
    scale[1] = std::max(scale[1], sample.cost.flops);
    scale[2] = std::max(scale[2], sample.cost.bytes);
  }
  std::vector<Row> rows;
  for (const KernelSample& sample : samples)
    if (sample.seconds > 0)
      rows.push_back({1 / sample.seconds, sample.cost.flops / scale[1] / sample.seconds,
                      sample.cost.bytes / scale[2] / sample.seconds});
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  // Fewer terms are tried first. More must fit better by more than rounding.
  for (const unsigned chosen : {0b100u, 0b010u, 0b001u, 0b110u, 0b101u, 0b011u, 0b111u}) {
    const std::optional<Row> x = solve(rows, chosen);
    if (!x || any_negative(*x)) continue;
    const double error = squared_error(rows, *x);
    if (error + 1e-12 >= least) continue;
    least = error;
    best = *x;
  }
  return {best[0], best[1] / scale[1], best[2] / scale[2]};
}

DType element_type(const OpShape& shape) {
  for (int i = 0; i < shape.count; ++i) {
    const DType type = shape.operand[i].dtype;
    if (shape.operand[i].present && is_float(type)) return type;
  }
  return shape.operand[0].dtype;
}

namespace {

// Returns 0 if the op has no such attribute.
std::int64_t integer_attr(const OpDef& op, const OpShape& shape, std::string_view name) {
  for (std::uint64_t i = 0; i < op.attr_count; ++i)
    if (op.attrs[i].name == name) return shape.attrs[i].i;
  return 0;
}

}  // namespace

bool multiplies_in_fp8(const OpDef& op, const OpShape& shape) {
  return op.in_blocks && integer_attr(op, shape, "fp8") != 0;
}

double layers_in_fp8(const Program& program, Id id) {
  const Op& op = program.op(id);
  if (!op.def->in_blocks || program.attr(id, "fp8") == 0) return 0;
  if (!op.has_attr("fp8_from") || !op.has_attr("fp8_until")) return 1;
  const auto all = static_cast<double>(program.segment(op.segment).repeat);
  const double until = program.attr(id, "fp8_until");
  return ((until == 0 ? all : until) - program.attr(id, "fp8_from")) / all;
}

double share_in_fp8(const Program& program) {
  double all = 0, narrow = 0;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const std::vector<Id>& function : program.segment(segment).functions)
      for (const Id id : function) {
        const Op& op = program.op(id);
        if (!op.def->in_blocks) continue;
        const double flops =
            op.cost(program.local_shape(op)).flops * static_cast<double>(program.segment(segment).repeat);
        all += flops;
        narrow += flops * layers_in_fp8(program, id);
      }
  return all > 0 ? narrow / all : 0;
}

std::string kernel_name(const OpDef& op, const OpShape& shape) {
  if (!multiplies_in_fp8(op, shape)) return op.kind;
  const bool all = integer_attr(op, shape, "fp8_from") == 0 && integer_attr(op, shape, "fp8_until") == 0;
  return detail::concat(op.kind, all ? " in fp8" : " partly in fp8");
}

std::string shape_key(const OpDef& op, const OpShape& shape) {
  std::ostringstream text;
  text << op.kind << '(';
  for (int i = 0; i < shape.count; ++i) {
    const OperandShape& operand = shape.operand[i];
    if (i) text << ", ";
    if (!operand.present) {
      text << '-';
      continue;
    }
    text << name_of(operand.dtype) << '[';
    for (int d = 0; d < operand.rank; ++d) text << (d ? "," : "") << operand.dims[d].extent;
    text << ']';
  }
  text << ')';
  for (std::uint64_t i = 0; i < op.attr_count; ++i) {
    const AttrDef& attr = op.attrs[i];
    if (!attr.later || attr.says_nothing(shape.attrs[i])) continue;
    text << ", " << attr.name << '=';
    attr.real ? text << shape.attrs[i].f : text << shape.attrs[i].i;
  }
  return text.str();
}

double ExchangeCurve::seconds(std::int64_t bytes) const {
  if (points.size() == 1 || bytes <= points.front().bytes) return points.front().seconds;
  std::size_t right = 1;
  while (right + 1 < points.size() && points[right].bytes < bytes) ++right;
  const ExchangePoint &a = points[right - 1], &b = points[right];
  const double slope = (b.seconds - a.seconds) / static_cast<double>(b.bytes - a.bytes);
  // After the last point, more bytes never take less time.
  if (bytes > b.bytes) return b.seconds + std::max(0.0, slope) * static_cast<double>(bytes - b.bytes);
  return a.seconds + slope * static_cast<double>(bytes - a.bytes);
}

void CostTable::merge(const CostTable& newer) {
  machine = newer.machine;
  if (newer.host_gb_per_second) host_gb_per_second = newer.host_gb_per_second;
  rates.insert(rates.begin(), newer.rates.begin(), newer.rates.end());
  const auto take = [](auto& mine, const auto& theirs) {
    for (const auto& [key, value] : theirs) mine.insert_or_assign(key, value);
  };
  take(overheads, newer.overheads);
  take(kernels, newer.kernels);
  take(exact, newer.exact);
  take(exchanges, newer.exchanges);
  take(exact_exchanges, newer.exact_exchanges);
}

CostTable CostTable::rates_alone() const {
  CostTable other;
  other.machine = machine;
  other.rates = rates;
  return other;
}

CostTable CostTable::without_time_of_drives(std::string_view tier) const {
  CostTable other = *this;
  for (auto& [key, fit] : other.kernels)
    if (key.device == tier) fit = {};
  for (auto& [key, seconds] : other.exact)
    if (key.device == tier) seconds = 0;
  constexpr double none = 1e18;  // practically nothing
  for (DeviceRates& one : other.rates)
    if (one.drive_bytes_per_second) one.drive_bytes_per_second = none;
  if (const auto stated = other.stated_drives.find(std::string(tier)); stated != other.stated_drives.end())
    stated->second = {none, none};
  return other;
}

bool CostTable::has_kernels_of(std::string_view device) const {
  const auto is_of_it = [&](const auto& entry) { return entry.first.device == device; };
  return std::any_of(kernels.begin(), kernels.end(), is_of_it) ||
         std::any_of(exact.begin(), exact.end(), is_of_it);
}

const DeviceRates* CostTable::rates_of(std::string_view device) const {
  const auto found =
      std::find_if(rates.begin(), rates.end(), [&](const DeviceRates& one) { return one.is_of(device); });
  return found == rates.end() ? nullptr : &*found;
}

// Scales what a collective takes beyond its smallest measured time.
CostTable CostTable::with_links(double times) const {
  CostTable other = *this;
  const auto quicker = [times](double seconds, double fixed) { return fixed + (seconds - fixed) / times; };
  for (auto& [key, curve] : other.exchanges)
    for (ExchangePoint& point : curve.points)
      point.seconds = quicker(point.seconds, std::min(point.seconds, curve.points.front().seconds));
  for (auto& [key, time] : other.exact_exchanges) time.seconds /= times;
  for (DeviceRates& one : other.rates) {
    one.within.bytes_per_second *= times;
    one.between.bytes_per_second *= times;
  }
  return other;
}

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_of_word(char c) { return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9'); }

// Case does not matter, word limits do: "GH200" does not contain h200.
bool has_word(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  for (auto at = text.begin();; ++at) {
    at = std::search(at, text.end(), word.begin(), word.end(), same);
    if (at == text.end()) return false;
    const auto behind = at + std::ssize(word);
    if ((at == text.begin() || !is_of_word(at[-1])) && (behind == text.end() || !is_of_word(*behind)))
      return true;
  }
}

}  // namespace

bool DeviceRates::is_of(std::string_view name) const {
  return name.find(device) != std::string_view::npos || (!short_name.empty() && has_word(name, short_name));
}

// fp16 and bf16 have the same rate on tensor cores.
double DeviceRates::rate_of(DType type) const {
  const DType half = type == DType::f16 ? DType::bf16 : type == DType::bf16 ? DType::f16 : type;
  for (const DType one : {type, half})
    if (const auto own = flops_per_second.find(one); own != flops_per_second.end()) return own->second;
  double rate = 0;
  for (const auto& [other, flops] : flops_per_second) rate = rate > 0 ? std::min(rate, flops) : flops;
  return rate;
}

double DeviceRates::seconds(const OpCost& cost, DType type) const {
  const double rate = rate_of(type);
  return fixed +
         std::max(rate > 0 ? cost.flops / rate : 0, bytes_per_second > 0 ? cost.bytes / bytes_per_second : 0);
}

// A cast reads the 16-bit factor and writes codes of half its size: 1.5 times its bytes. A factor that
// arrives as codes needs no cast.
std::optional<double> DeviceRates::seconds_in_fp8(const OpDef& op, const OpShape& shape,
                                                  const OpCost& cost) const {
  if (!fp8_flops_per_second || bytes_per_second <= 0) return {};
  double factors = 0;  // in bytes
  for (int i = 0; i < shape.count && i < 2; ++i)
    if (op.operands[i].access == Access::read && is_float(shape.operand[i].dtype))
      factors += shape.operand[i].bytes();
  return fixed + std::max(cost.flops / *fp8_flops_per_second, cost.bytes / bytes_per_second) +
         1.5 * factors / bytes_per_second;
}

bool CostTable::has_exchanges_of(std::string_view device, bool between_hosts) const {
  return std::any_of(exchanges.begin(), exchanges.end(), [&](const auto& entry) {
    return entry.first.device == device && entry.first.between_hosts == between_hosts;
  });
}

ExactExchange exact_exchange(const PlannedExchange& exchange, std::int64_t members, std::string device,
                             std::string_view queue) {
  const bool between_two = exchange.kind == CommKind::send || exchange.kind == CommKind::recv;
  return {std::move(device), std::string(queue), between_two ? CommKind::send : exchange.kind,
          between_two ? 2 : members, exchange_bytes(exchange, members)};
}

}  // namespace prun
