// The inside of the plot frame. It has no origin, no network but this directory, and no way to the page but messages.
'use strict';

(() => {
  const place = document.getElementById('place');
  const tell = (message) => parent.postMessage(message, '*');
  const LIBRARIES = { echarts: 'vendor/echarts.min.js', mermaid: 'vendor/mermaid.tiny.js' };
  const CHART_HEIGHT = 340;

  const load = (kind) =>
    new Promise((resolve, reject) => {
      const script = document.createElement('script');
      script.src = LIBRARIES[kind];
      script.onload = resolve;
      script.onerror = () => reject(new Error('its library did not load; reload the page'));
      document.head.append(script);
    });

  async function draw({ kind, text, look }) {
    document.documentElement.style.colorScheme = look.dark ? 'dark' : 'light';
    await load(kind);
    tell({ type: 'drawn', height: await (kind === 'echarts' ? chart(text, look) : diagram(text, look)) });
  }

  function chart(text, look) {
    const option = JSON.parse(text);
    if (option === null || typeof option !== 'object' || Array.isArray(option))
      throw new Error('its options are not an object');
    place.style.height = `${CHART_HEIGHT}px`;
    const drawn = echarts.init(place, look.dark ? 'dark' : null, { renderer: 'svg' });
    const tooltip = {
      trigger: 'item',
      ...(typeof option.tooltip === 'object' ? option.tooltip : {}),
      renderMode: 'richText',
    };
    // Its own margins leave half of a narrow page empty.
    const grid = {
      left: 8,
      right: 16,
      top: option.title ? 64 : 24,
      bottom: option.legend ? 40 : 12,
      containLabel: true,
    };
    drawn.setOption({
      backgroundColor: 'transparent',
      animation: false,
      ...(option.xAxis ? { grid } : {}),
      ...option,
      tooltip,
    });
    addEventListener('resize', () => drawn.resize());
    return CHART_HEIGHT;
  }

  async function diagram(text, look) {
    mermaid.initialize({
      startOnLoad: false,
      securityLevel: 'strict',
      theme: 'base',
      look: 'classic',
      fontFamily: 'system-ui, sans-serif',
      themeVariables: {
        darkMode: look.dark,
        background: look.surface,
        primaryColor: look.soft,
        primaryTextColor: look.text,
        primaryBorderColor: look.accent,
        lineColor: look.muted,
        textColor: look.text,
        edgeLabelBackground: look.surface,
        fontSize: '15px',
      },
      maxTextSize: 100000,
      maxEdges: 1000,
      suppressErrorRendering: true,
    });
    // Its labels may hold markup, which it makes of them before it cleans it. Here a label is text, with line breaks.
    const spelled = text.replace(/(?<!<)<(?!br\s*\/?>)(?=[a-z/!?])/gi, '#lt;');
    const { svg } = await mermaid.render('diagram', spelled);
    const parsed = new DOMParser().parseFromString(svg, 'text/html').querySelector('svg');
    place.replaceChildren(document.adoptNode(parsed));
    const { width, height } = parsed.viewBox.baseVal;
    return height * Math.min(1, place.clientWidth / width) + 8;
  }

  addEventListener(
    'message',
    (event) => {
      if (event.source !== parent) return;
      draw(event.data).catch((failure) => tell({ type: 'failed', message: failure.message || String(failure) }));
    },
    { once: true },
  );
  tell({ type: 'ready' });
})();
