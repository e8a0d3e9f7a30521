// Defines lists whose entries are named by number elsewhere.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace prun {

// Is a vector that takes any integer as an index: numbers in a plan are signed, since -1 says that there is
// none, and narrow, since there are many.
template <class T>
class Numbered : public std::vector<T> {
  using List = std::vector<T>;

 public:
  using List::List;
  Numbered(List list) : List(std::move(list)) {}
  // Makes a list of `count` entries.
  template <std::signed_integral Number>
  explicit Numbered(Number count, const T& each = T()) : List(static_cast<std::size_t>(count), each) {}

  template <std::integral Number>
  typename List::reference operator[](Number number) {
    return List::operator[](static_cast<std::size_t>(number));
  }
  template <std::integral Number>
  typename List::const_reference operator[](Number number) const {
    return List::operator[](static_cast<std::size_t>(number));
  }
  // Returns an entry; throws if there is none.
  template <std::integral Number>
  typename List::reference at(Number number) {
    return List::at(static_cast<std::size_t>(number));
  }
  template <std::integral Number>
  typename List::const_reference at(Number number) const {
    return List::at(static_cast<std::size_t>(number));
  }
};

// Does the same for a list that another object owns.
template <class T>
class NumberedView : public std::span<const T> {
  using View = std::span<const T>;

 public:
  NumberedView(View list) : View(list) {}
  NumberedView(const std::vector<T>& list) : View(list) {}

  template <std::integral Number>
  const T& operator[](Number number) const {
    return View::operator[](static_cast<std::size_t>(number));
  }
};

}  // namespace prun
