// Runs before anything is painted, so that nobody who chose dark sees a flash of light.
(() => {
  try {
    const chosen = localStorage.getItem('console.theme');
    if (chosen === 'light' || chosen === 'dark') document.documentElement.setAttribute('data-theme', chosen);
  } catch {
    // A browser may refuse storage; the page then follows the system.
  }
})();
