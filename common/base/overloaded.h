// Overloaded: one function object of several lambdas, for std::visit. A variant's new alternative does not compile
// until every visit says what becomes of it; so no auto parameter that takes what is left.
#pragma once

namespace cairn {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace cairn
